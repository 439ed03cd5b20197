// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// fieldManager is not the field manager of cordon and drain, so that these stay when a join is repeated.
	fieldManager = "kubectl-trainyard-join"
	// requestTimeout is for one request.
	requestTimeout = 30 * time.Second
)

// Side says which of the two clusters something is about.
type Side string

// The sides.
const (
	HubSide    Side = "hub"
	WorkerSide Side = "worker"
)

// Cluster is one of the two clusters, with the caller's rights.
type Cluster struct {
	Side Side
	// Context is the context in the caller's kubeconfig, or empty for the current one.
	Context string
	// Kubeconfig is the file that the caller has named, or empty.
	Kubeconfig string
	// Config has the caller's credentials.
	Config *rest.Config
	// DryRun makes the API server check all writes, and persist none.
	DryRun bool

	client.Client
	// kubernetes asks what is no object: versions, APIs, rights and tokens.
	kubernetes kubernetes.Interface
	clock      *serverClock
}

// NewCluster returns a cluster. It sends no request.
func NewCluster(side Side, contextName string, config *rest.Config, dryRun bool) (*Cluster, error) {
	c := &Cluster{Side: side, Context: contextName, Config: rest.CopyConfig(config), DryRun: dryRun, clock: &serverClock{}}
	c.Config.WarningHandler = rest.NoWarnings{}
	if c.Config.Timeout == 0 {
		c.Config.Timeout = requestTimeout
	}
	c.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &dated{next: next, clock: c.clock} })
	var err error
	limits := bounded.Limits{Timeout: c.Config.Timeout}
	if c.kubernetes, err = bounded.Kubernetes(c.Config, limits); err != nil {
		return nil, fmt.Errorf("make client of the %s: %w", side, err)
	}
	if c.Client, err = cluster.New(bounded.Config(c.Config, limits)); err != nil {
		return nil, fmt.Errorf("make client of the %s: %w", side, err)
	}
	c.Client = client.WithFieldOwner(c.Client, fieldManager)
	if dryRun {
		c.Client = client.NewDryRunClient(c.Client)
	}
	return c, nil
}

// kubectl is how printed commands call kubectl for this cluster.
func (c *Cluster) kubectl() string { return c.command("kubectl", "--context") }

// helm begins a command of Helm for the cluster.
func (c *Cluster) helm() string { return c.command("helm", "--kube-context") }

func (c *Cluster) command(program, contextFlag string) string {
	words := program
	if c.Kubeconfig != "" {
		words += " --kubeconfig " + c.Kubeconfig
	}
	if c.Context != "" {
		words += " " + contextFlag + " " + c.Context
	}
	return words
}

// serverClock knows how far the clock of an API server is ahead of ours.
type serverClock struct {
	mu    sync.Mutex
	known bool
	ahead time.Duration
}

// get returns whether the server has told its time, and how far its clock is ahead of ours.
func (s *serverClock) get() (ahead time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead, s.known
}

// dated reads the time from the answers of a server. A Date has whole seconds, so the result is right to half a second.
type dated struct {
	next  http.RoundTripper
	clock *serverClock
}

// RoundTrip sends a request.
func (d *dated) RoundTrip(request *http.Request) (*http.Response, error) {
	before := time.Now()
	response, err := d.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	after := time.Now()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.clock.mu.Lock()
		d.clock.known, d.clock.ahead = true, date.Add(time.Second/2).Sub(before.Add(after.Sub(before)/2))
		d.clock.mu.Unlock()
	}
	return response, nil
}

// unchecked is cluster.Created in a dry run: an API server cannot check an object of a namespace that it does not have.
const unchecked cluster.Result = "created, unchecked because its namespace is new"

// name names an object as kubectl does.
func name(object *unstructured.Unstructured) string {
	text := strings.ToLower(object.GetKind())
	if group := object.GroupVersionKind().Group; group != "" {
		text += "." + group
	}
	text += "/" + object.GetName()
	if object.GetNamespace() != "" {
		text += " in " + object.GetNamespace()
	}
	return text
}

// get returns an object of the cluster, or nil.
func (c *Cluster) get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(object), live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, c.failed("get", object, err)
	}
	return live, nil
}

// failed adds to an error what was being done with an object. It returns nil for nil.
func (c *Cluster) failed(verb string, object *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s on the %s: %w", verb, name(object), c.Side, err)
}

// list returns the objects of a kind with some labels. A kind that is not served has none.
func (c *Cluster) list(
	ctx context.Context, kind schema.GroupVersionKind, labels client.MatchingLabels,
) (all []unstructured.Unstructured, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = cluster.Each(ctx, c, list, func(object *unstructured.Unstructured) { all = append(all, *object) }, labels)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s on the %s: %w", cluster.ResourceOf(kind).Resource, c.Side, err)
	}
	return all, nil
}

// apply makes the cluster have an object. Fields that the object does not have stay as they are.
func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) (cluster.Result, error) {
	live, err := c.get(ctx, object)
	if err != nil {
		return "", err
	}
	if live == nil && c.DryRun && object.GetNamespace() != "" {
		if there, err := c.hasNamespace(ctx, object.GetNamespace()); err != nil || !there {
			return unchecked, err
		}
	}
	result, err := cluster.Apply(ctx, c, object, live, client.ForceOwnership)
	return result, c.failed("apply", object, err)
}

// merge merges the fields of an object into live, which is there.
func (c *Cluster) merge(ctx context.Context, object, live *unstructured.Unstructured) (cluster.Result, error) {
	result, err := cluster.Merge(ctx, c, object, live)
	return result, c.failed("patch", object, err)
}

// remove deletes an object. It returns "" if the object is not there.
func (c *Cluster) remove(ctx context.Context, object *unstructured.Unstructured) (cluster.Result, error) {
	err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return cluster.Deleted, c.failed("delete", object, err)
}

func (c *Cluster) hasNamespace(ctx context.Context, namespace string) (bool, error) {
	live, err := c.get(ctx, newObject("v1", "Namespace", "", namespace))
	return live != nil, err
}

func newObject(apiVersion, kind, namespace, objectName string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(objectName)
	return object
}
