// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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

	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
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
	if c.dynamic, err = bounded.Dynamic(c.Config, limits); err != nil {
		return nil, fmt.Errorf("make client of the %s: %w", side, err)
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

// Result says what was done with an object, or would be done.
type Result string

// The results are kubectl's words.
const (
	Created    Result = "created"
	Configured Result = "configured"
	Unchanged  Result = "unchanged"
	Deleted    Result = "deleted"
	// unchecked is Created in a dry run: the API server cannot check an object of a namespace that it does not have.
	unchecked Result = "created, unchecked because its namespace is new"
	// Absent objects are not there, so there is nothing to delete.
	Absent Result = ""
)

// resourceOf returns the resource of a kind. All kinds that this package knows have regular plurals.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

func (c *Cluster) objects(object *unstructured.Unstructured) dynamic.ResourceInterface {
	all := c.dynamic.Resource(resourceOf(object.GroupVersionKind()))
	if object.GetNamespace() == "" {
		return all
	}
	return all.Namespace(object.GetNamespace())
}

func (c *Cluster) dryRun() []string {
	if c.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// name names an object as kubectl does.
func name(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	text := resourceOf(kind).Resource
	text = text[:len(text)-1] // As good as the singular for a reader, without a second request.
	if singular := singulars[kind.Kind]; singular != "" {
		text = singular
	}
	if kind.Group != "" {
		text += "." + kind.Group
	}
	text += "/" + object.GetName()
	if object.GetNamespace() != "" {
		text += " in " + object.GetNamespace()
	}
	return text
}

// singulars has the singulars that are not the plural without its last letter.
var singulars = map[string]string{"ValidatingAdmissionPolicy": "validatingadmissionpolicy"}

// get returns an object of the cluster, or nil.
func (c *Cluster) get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := c.objects(object).Get(ctx, object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s on the %s: %w", name(object), c.Side, err)
	}
	return live, nil
}

// apply makes the cluster have an object. Fields that the object does not have stay as they are.
func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) (Result, error) {
	live, err := c.get(ctx, object)
	if err != nil {
		return "", err
	}
	if live == nil && c.DryRun && object.GetNamespace() != "" {
		if there, err := c.hasNamespace(ctx, object.GetNamespace()); err != nil || !there {
			return unchecked, err
		}
	}
	data, err := json.Marshal(object)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", name(object), err)
	}
	force := true
	after, err := c.objects(object).Patch(ctx, object.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force, DryRun: c.dryRun()})
	switch {
	case err != nil:
		return "", fmt.Errorf("apply %s on the %s: %w", name(object), c.Side, err)
	case live == nil:
		return Created, nil
	case same(live, after):
		return Unchanged, nil
	}
	return Configured, nil
}

// patch merges fields into an object that is there.
func (c *Cluster) patch(ctx context.Context, live *unstructured.Unstructured, fields map[string]any) (Result, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", name(live), err)
	}
	after, err := c.objects(live).Patch(ctx, live.GetName(), types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: fieldManager, DryRun: c.dryRun()})
	switch {
	case err != nil:
		return "", fmt.Errorf("patch %s on the %s: %w", name(live), c.Side, err)
	case same(live, after):
		return Unchanged, nil
	}
	return Configured, nil
}

// create creates an object that is not there.
func (c *Cluster) create(ctx context.Context, object *unstructured.Unstructured) (Result, error) {
	_, err := c.objects(object).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager, DryRun: c.dryRun()})
	if err != nil {
		return "", fmt.Errorf("create %s on the %s: %w", name(object), c.Side, err)
	}
	return Created, nil
}

// remove deletes an object, if it is there.
func (c *Cluster) remove(ctx context.Context, object *unstructured.Unstructured) (Result, error) {
	background := metav1.DeletePropagationBackground
	err := c.objects(object).Delete(ctx, object.GetName(), metav1.DeleteOptions{DryRun: c.dryRun(), PropagationPolicy: &background})
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", fmt.Errorf("delete %s on the %s: %w", name(object), c.Side, err)
	}
	return Deleted, nil
}

func (c *Cluster) hasNamespace(ctx context.Context, namespace string) (bool, error) {
	live, err := c.get(ctx, newObject("v1", "Namespace", "", namespace))
	return live != nil, err
}

// same compares what an object was with what it is. A dry run keeps the version, so the content counts.
func same(before, after *unstructured.Unstructured) bool {
	without := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0)
		delete(object.Object, "status")
		return object.Object
	}
	return equality.Semantic.DeepEqual(without(before), without(after))
}

func newObject(apiVersion, kind, namespace, objectName string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(objectName)
	return object
}
