// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// toSee are the verbs that a page needs: it shows a list that changes.
var toSee = []string{"list", "watch"}

// rights returns what a caller needs to see objects.
func rights(group, resource, namespace string) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, verb := range toSee {
		all = append(all, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: namespace, Verb: verb})
	}
	return all
}

// ofWorkers are the rights to see WorkerClusters, and ofJobs those to see the jobs of a namespace, or of all.
func ofWorkers() []authorizationv1.ResourceAttributes {
	return rights(v1alpha1.GroupVersion.Group, "workerclusters", "")
}

func ofJobs(namespace string) []authorizationv1.ResourceAttributes {
	return append(rights(v1alpha1.GroupVersion.Group, "dispatches", namespace),
		rights(trainjobs.New().GroupVersionKind().Group, "trainjobs", namespace)...)
}

// missing returns which of some rights the caller lacks, a line for each kind of object.
func missing(ctx context.Context, c Caller, asked []authorizationv1.ResourceAttributes) ([]string, error) {
	lacks := make([]bool, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	for i := range asked {
		group.Go(func() error {
			allowed, err := c.Allows(ctx, asked[i])
			lacks[i] = !allowed
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var lines []string
	for i, verbs := 0, []string(nil); i < len(asked); i++ {
		if lacks[i] {
			verbs = append(verbs, asked[i].Verb)
		}
		if last := i+1 == len(asked) || asked[i+1].Resource != asked[i].Resource; last && len(verbs) > 0 {
			lines = append(lines, nameOf(asked[i])+": "+strings.Join(verbs, ", "))
			verbs = nil
		}
	}
	return lines, nil
}

func nameOf(a authorizationv1.ResourceAttributes) string {
	name := a.Resource + "." + a.Group
	if a.Namespace != "" {
		name += " in namespace " + a.Namespace
	}
	return name
}

// authorize fills in the scope of a query, or says why the caller does not get the page.
func (b *Board) authorize(ctx context.Context, c Caller, q query) (query, int, *problem) {
	asked := ofJobs(q.namespace)
	if q.page == fleetPage {
		asked = ofWorkers()
	}
	lacks, err := missing(ctx, c, asked)
	switch {
	case apierrors.IsUnauthorized(err):
		return q, http.StatusUnauthorized, &problem{Error: "the hub does not know your token", Todo: "log in again"}
	case err != nil:
		return q, http.StatusBadGateway, &problem{Error: fmt.Sprintf("ask the hub for your rights: %v", err), Todo: "check that you are logged in to the hub"}
	case len(lacks) > 0:
		return q, http.StatusForbidden, lacking(q, lacks)
	}
	if p := b.unwatched(q); p != nil {
		return q, http.StatusForbidden, p
	}
	// Positions count the jobs of all namespaces. So who may not list those does not see positions.
	if q.page == queuePage && b.options.Watched.Namespace == "" {
		lacks, err = missing(ctx, c, ofJobs(""))
		q.whole = err == nil && len(lacks) == 0
	}
	return q, http.StatusOK, nil
}

func lacking(q query, lacks []string) *problem {
	p := &problem{Error: "you lack rights on the hub that this page needs", Lacks: lacks}
	switch {
	case q.page == fleetPage:
		p.Todo = "ask an admin of the hub for the ClusterRole trainyard-operator; the other pages need no such right"
	case q.namespace == "":
		p.Todo = "choose a namespace of yours, or ask an admin of the hub for the ClusterRole trainyard-operator"
	default:
		p.Todo = fmt.Sprintf("choose a namespace of yours, or ask an admin of the hub for the ClusterRole view in namespace %q", q.namespace)
	}
	return p
}

// unwatched says that the process does not watch what a page shows, though the caller might see it.
func (b *Board) unwatched(q query) *problem {
	watched := b.options.Watched
	switch {
	case q.page == fleetPage && !watched.Workers || q.page != fleetPage && !watched.Jobs:
		return &problem{Error: "your rights have changed since the board was started", Todo: "start kubectl trainyard board again"}
	case q.page != fleetPage && watched.Namespace != "" && watched.Namespace != q.namespace:
		return &problem{
			Error: fmt.Sprintf("this board was started for namespace %q, because you may not list the jobs of all namespaces", watched.Namespace),
			Todo:  "choose that namespace, or start kubectl trainyard board again with --namespace",
		}
	}
	return nil
}

// Watchable says what a process can watch with the rights of its user: all that the user may list and watch. Of jobs it is
// those of all namespaces, or those of the given one.
func Watchable(ctx context.Context, user Caller, namespace string) (w Watched, err error) {
	may := func(asked []authorizationv1.ResourceAttributes) bool {
		lacks, e := missing(ctx, user, asked)
		if e != nil {
			err = e
		}
		return e == nil && len(lacks) == 0
	}
	w.Workers, w.Jobs = may(ofWorkers()), may(ofJobs(""))
	if !w.Jobs && may(ofJobs(namespace)) {
		w.Jobs, w.Namespace = true, namespace
	}
	return w, err
}
