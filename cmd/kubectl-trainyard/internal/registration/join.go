// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/kubeconfigs"
)

// errRefused says that a preflight has found what cannot work. Nothing was changed.
var errRefused = errors.New("nothing was changed")

// Join is the registration of a worker.
type Join struct {
	pair
	options Options
	seen    *observation
	objects []*unstructured.Unstructured
	// say prints a line about an object.
	say func(line string) error
}

// NewJoin returns a join. say prints what has been done.
func NewJoin(hub, worker *Cluster, options Options, say func(line string) error) *Join {
	return &Join{pair: pair{hub: hub, worker: worker}, options: options, say: say}
}

// Preflight reads both clusters and writes nothing. It returns an item for everything that was looked at.
func (j *Join) Preflight(ctx context.Context) ([]Item, error) {
	j.seen = j.observe(ctx, j.options)
	var err error
	if j.objects, err = j.seen.workerObjects(); err != nil {
		return nil, err
	}
	j.askRights(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return j.seen.check(), nil
}

// askRights asks both clusters what the caller may do.
func (j *Join) askRights(ctx context.Context) {
	f := j.seen
	if f.worker.err == nil {
		rights := rightsFor([]*unstructured.Unstructured{boundSecret("")}, "create", "get", "list", "patch")
		rights = append(rights, rightsFor(j.objects, "create", "get", "patch")...)
		rights = append(rights, cluster.Right{
			Resource: "serviceaccounts", Subresource: "token", Namespace: workerNamespace, Verb: "create",
		})
		f.worker.denied, f.worker.err = j.worker.missing(ctx, rights)
	}
	if f.hub.err == nil {
		rights := rightsFor([]*unstructured.Unstructured{workerCluster("")}, "create", "get", "list", "patch")
		rights = append(rights, rightsFor(append(f.renewalRights(), f.credentialsSecret(nil)), "create", "get", "patch")...)
		f.hub.denied, f.hub.err = j.hub.missing(ctx, rights)
	}
}

// rightsFor are the rights to use some verbs on objects, each once.
func rightsFor(objects []*unstructured.Unstructured, verbs ...string) []cluster.Right {
	var all []cluster.Right
	for _, object := range objects {
		resource := cluster.ResourceOf(object.GroupVersionKind())
		for _, verb := range verbs {
			r := cluster.Right{
				Group: resource.Group, Resource: resource.Resource, Namespace: object.GetNamespace(), Verb: verb,
			}
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}

// missing returns the rights that the caller lacks, a line for each kind of object, sorted.
func (c *Cluster) missing(ctx context.Context, rights []cluster.Right) ([]string, error) {
	lines, err := cluster.Missing(ctx, c.kubernetes, rights)
	slices.Sort(lines)
	return lines, err
}

// Refusal is the error of a preflight with items that fail, or nil.
func Refusal(items []Item) error {
	if faults(items) == nil {
		return nil
	}
	count := 0
	for _, item := range items {
		if item.Level == Fail {
			count++
		}
	}
	if count == 1 {
		return fmt.Errorf("one check has failed, and %w", errRefused)
	}
	return fmt.Errorf("%d checks have failed, and %w", count, errRefused)
}

// Apply writes on both clusters: first the rights on the worker, then the credentials, then the registration. If a run
// was interrupted anywhere, the next run ends as if it were the only one.
func (j *Join) Apply(ctx context.Context) error {
	f := j.seen
	if err := j.copyCRDs(ctx); err != nil {
		return err
	}
	for _, object := range j.objects {
		if err := j.write(ctx, j.worker, object); err != nil {
			return err
		}
	}
	kubeconfig, err := j.credentials(ctx)
	if err != nil {
		return err
	}
	// The right comes before the Secret: the manager may find a Secret that it cannot renew.
	for _, object := range append(f.renewalRights(), f.credentialsSecret(kubeconfig)) {
		if err := j.write(ctx, j.hub, object); err != nil {
			return err
		}
	}
	result, err := f.writeWorkerCluster(ctx, j.hub)
	if err != nil {
		return err
	}
	return j.tell(j.hub, workerCluster(j.options.Name), result)
}

func (j *Join) write(ctx context.Context, c *Cluster, object *unstructured.Unstructured) error {
	result, err := c.apply(ctx, object)
	if err != nil {
		return err
	}
	return j.tell(c, object, result)
}

func (j *Join) tell(c *Cluster, object *unstructured.Unstructured, result cluster.Result) error {
	return j.say(c.line(object, result))
}

// line says what was done with an object.
func (c *Cluster) line(object *unstructured.Unstructured, result cluster.Result) string {
	line := fmt.Sprintf("%-6s  %s %s", c.Side, name(object), result)
	if c.DryRun {
		line += " (server dry run)"
	}
	return line
}

// copyCRDs copies the CRDs of Kubeflow Trainer that the worker lacks from the hub. It does not change existing CRDs.
func (j *Join) copyCRDs(ctx context.Context) error {
	if !j.options.CopyCRDs {
		return nil
	}
	for _, crd := range copiedCRDs {
		object := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd)
		live, err := j.worker.get(ctx, object)
		if err != nil {
			return err
		}
		result := cluster.Unchanged
		if live == nil {
			source, err := j.hub.get(ctx, object)
			switch {
			case err != nil:
				return err
			case source == nil:
				return fmt.Errorf("the hub does not have %s", name(object))
			}
			fillCRD(object, source)
			if strategy, _, _ := unstructured.NestedString(object.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
				return fmt.Errorf("%s of the hub converts with a webhook of the hub, so it cannot be copied: install it on the worker", name(object))
			}
			if result, err = j.worker.apply(ctx, object); err != nil {
				return err
			}
		}
		if err := j.tell(j.worker, object, result); err != nil {
			return err
		}
	}
	return nil
}

// fillCRD gives a CRD of a worker what the hub's CRD has. Labels by which tools track the hub's CRD stay there: the same
// tool on the worker would delete the worker's CRD, and all copies with it.
func fillCRD(crd, source *unstructured.Unstructured) {
	labels := source.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return v1alpha1.IsTrackingName(key) })
	crd.SetLabels(labels)
	crd.Object["spec"] = source.Object["spec"]
}

// credentials returns the kubeconfig that the hub has already, if that is fresh. Otherwise it returns a kubeconfig with
// a new token that it has tried.
func (j *Join) credentials(ctx context.Context) ([]byte, error) {
	bound := boundSecret(string(j.seen.hub.id))
	if err := j.write(ctx, j.worker, bound); err != nil {
		return nil, err
	}
	bound, err := j.worker.get(ctx, bound)
	if err != nil {
		return nil, err
	}
	authority, err := j.worker.authority(ctx)
	if err != nil {
		return nil, err
	}
	address := j.seen.address
	if bound == nil { // Only in a dry run of a new worker: there is no account yet that could have a token.
		return j.worker.kubeconfig(address, authority, "a-token-that-the-dry-run-does-not-make")
	}
	present, err := j.hub.get(ctx, j.seen.credentialsSecret(nil))
	if err != nil {
		return nil, err
	}
	if present != nil {
		if data := secretData(present); j.worker.isFresh(ctx, data, address, authority, bound) || j.worker.DryRun && len(data) > 0 {
			return data, nil
		}
	}
	if j.worker.DryRun {
		return j.worker.kubeconfig(address, authority, "a-token-that-the-dry-run-does-not-make")
	}
	token, err := j.worker.tokenFor(ctx, bound, j.options.TokenLife)
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfigs.ParseServiceAccountToken(token); err != nil {
		return nil, fmt.Errorf("the worker's token of ServiceAccount %s/%s is not taken: %w", workerNamespace, account, err)
	}
	data, err := j.worker.kubeconfig(address, authority, token)
	if err != nil {
		return nil, err
	}
	return data, j.try(ctx, data)
}

// try tries new credentials from here. The hub may be the only one that reaches the address of --server.
func (j *Join) try(ctx context.Context, data []byte) error {
	credentials, err := kubeconfigs.Parse(data, time.Now())
	if err != nil {
		return fmt.Errorf("the new kubeconfig cannot be used: %w", err)
	}
	err = whoIs(ctx, credentials)
	switch {
	case err == nil:
		return nil
	case j.options.Server == "":
		return fmt.Errorf("the new token of ServiceAccount %s/%s does not work: %w", workerNamespace, account, err)
	}
	return j.say(fmt.Sprintf("warn    the new kubeconfig could not be tried at %s from here: %v", j.options.Server, err))
}

func secretData(secret *unstructured.Unstructured) []byte {
	text, _, _ := unstructured.NestedString(secret.Object, "data", kubeconfigs.SecretKey)
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}

// Leftovers says what of an earlier registration is left for the admin to delete.
func (j *Join) Leftovers() []string {
	if !j.seen.hasLastingToken {
		return nil
	}
	return []string{fmt.Sprintf("Secret %s/%s of the worker has a token without an end, which an earlier release made and this hub no longer uses; "+
		"when no other hub uses it: %s -n %s delete secret %s", workerNamespace, lastingSecret, j.worker.kubectl(), workerNamespace, lastingSecret)}
}

// otherHubs returns the other hubs that have joined a worker.
func otherHubs(hubs []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(hubs), func(hub string) bool { return hub == id })
}
