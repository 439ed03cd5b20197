// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hubcache"
)

// Call is a request that crosses a network.
type Call struct {
	Server *Server
	// Verb and the other fields describe the request. Write: it may change something.
	Verb  string
	Kind  Kind
	Key   client.ObjectKey
	Write bool
	// Do carries the request out on the server, and returns the answer. It runs each time that the request arrives.
	Do func() (any, error)
	// Answer and Err are the result for the caller.
	Answer any
	Err    error
}

// Text describes the call.
func (c *Call) Text() string {
	return fmt.Sprintf("%s %s %s on %s", c.Verb, c.Kind, c.Key.Name, c.Server.Name)
}

// Line carries requests to servers. When it returns, the Call has the answer.
type Line func(*Call)

// Client reads from views. It reads kinds without a view from the server.
type Client struct {
	client.Client // Nil: methods that are not implemented are not called.
	Server        *Server
	Views         map[Kind]*View
	Line          Line
	Actor         string
	// Indexes has the indexes by field.
	Indexes map[string]func(client.Object) []string
}

// RESTMapper returns a mapper without kinds: the explorer's clusters have only the APIs that reconcilers always use.
func (c *Client) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// Live returns a client of the same server without views.
func (c *Client) Live() *Client {
	return &Client{Server: c.Server, Line: c.Line, Actor: c.Actor, Indexes: c.Indexes}
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, to client.Object, options ...client.GetOption) error {
	kind := KindOf(to)
	var how client.GetOptions
	for _, option := range options {
		option.ApplyToGet(&how)
	}
	var version *Version
	view, unread := c.Views[kind], false
	if view != nil {
		version = view.Get(key)
		unread = version == nil && view.IsLate()
	}
	switch { // As package hubcache does.
	case unread && hubcache.IsPatient(ctx):
		return hubcache.NewUnread(fmt.Sprintf("%s %s", kind, key), nil)
	case unread, view == nil:
		call := &Call{Server: c.Server, Verb: "get", Kind: kind, Key: key, Do: func() (any, error) { return c.Server.Get(kind, key), nil }}
		if c.Line(call); call.Err != nil {
			return call.Err
		}
		version = call.Answer.(*Version)
	}
	if version == nil {
		return NotFound(kind, key.Name)
	}
	version.into(to, how.UnsafeDisableDeepCopy != nil && *how.UnsafeDisableDeepCopy)
	return nil
}

// List implements client.Reader.
func (c *Client) List(_ context.Context, to client.ObjectList, options ...client.ListOption) error {
	kind := KindOf(to)
	var how client.ListOptions
	for _, option := range options {
		option.ApplyToList(&how)
	}
	var all []*Version
	if view := c.Views[kind]; view != nil {
		all = view.List()
	} else {
		call := &Call{Server: c.Server, Verb: "list", Kind: kind, Do: func() (any, error) { return c.Server.List(kind), nil }}
		if c.Line(call); call.Err != nil {
			return call.Err
		}
		all = call.Answer.([]*Version)
	}
	for _, version := range all {
		if c.matches(version.Object, &how) {
			add(to, version, how.UnsafeDisableDeepCopy != nil && *how.UnsafeDisableDeepCopy)
		}
	}
	return nil
}

func (c *Client) matches(object client.Object, how *client.ListOptions) bool {
	if how.Namespace != "" && object.GetNamespace() != how.Namespace {
		return false
	}
	if how.LabelSelector != nil && !how.LabelSelector.Matches(labelSet(object.GetLabels())) {
		return false
	}
	if how.FieldSelector == nil {
		return true
	}
	for _, requirement := range how.FieldSelector.Requirements() {
		found := false
		for _, value := range c.Indexes[requirement.Field](object) {
			found = found || value == requirement.Value
		}
		if !found {
			return false
		}
	}
	return true
}

// labelSet implements labels.Labels.
type labelSet map[string]string

func (l labelSet) Has(label string) bool              { _, ok := l[label]; return ok }
func (l labelSet) Get(label string) string            { return l[label] }
func (l labelSet) Lookup(label string) (string, bool) { value, ok := l[label]; return value, ok }

// add appends a version to a list.
func add(to client.ObjectList, version *Version, share bool) {
	switch to := to.(type) {
	case *v1alpha1.DispatchList:
		to.Items = append(to.Items, v1alpha1.Dispatch{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *v1alpha1.WorkerClusterList:
		to.Items = append(to.Items, v1alpha1.WorkerCluster{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *v1alpha1.TombstoneList:
		to.Items = append(to.Items, v1alpha1.Tombstone{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *v1alpha1.DispatchPolicyList:
		to.Items = append(to.Items, v1alpha1.DispatchPolicy{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *corev1.PodList:
		to.Items = append(to.Items, corev1.Pod{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *trainer.TrainJobList:
		to.Items = append(to.Items, trainer.TrainJob{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *unstructured.UnstructuredList:
		to.Items = append(to.Items, unstructured.Unstructured{})
		version.into(&to.Items[len(to.Items)-1], share)
	case *metav1.PartialObjectMetadataList:
		to.Items = append(to.Items, metav1.PartialObjectMetadata{})
		version.into(&to.Items[len(to.Items)-1], share)
	default:
		panic(fmt.Sprintf("no list of %T", to))
	}
}

// Create implements client.Writer.
func (c *Client) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	sent, how := object.DeepCopyObject().(client.Object), &client.CreateOptions{}
	for _, option := range options {
		option.ApplyToCreate(how)
	}
	if len(how.DryRun) > 0 {
		return c.write(object, "try", func() (any, error) { return c.Server.Try(sent, c.Actor) })
	}
	return c.write(object, "create", func() (any, error) { return c.Server.Create(sent, c.Actor) })
}

// Patch implements client.Writer.
func (c *Client) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(object, patch, "patch", false)
}

func (c *Client) patch(object client.Object, patch client.Patch, verb string, status bool) error {
	data, err := patch.Data(object)
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	kind, key := KindOf(object), client.ObjectKeyFromObject(object)
	return c.write(object, verb, func() (any, error) { return c.Server.Patch(kind, key, data, status, c.Actor) })
}

// write sends a request, and takes the answer into the object.
func (c *Client) write(object client.Object, verb string, do func() (any, error)) error {
	call := &Call{Server: c.Server, Verb: verb, Kind: KindOf(object), Key: client.ObjectKeyFromObject(object), Write: true, Do: do}
	if c.Line(call); call.Err != nil {
		return call.Err
	}
	call.Answer.(*Version).into(object, false)
	return nil
}

// Delete implements client.Writer.
func (c *Client) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	how := &client.DeleteOptions{}
	for _, option := range options {
		option.ApplyToDelete(how)
	}
	kind, key := KindOf(object), client.ObjectKeyFromObject(object)
	call := &Call{Server: c.Server, Verb: "delete", Kind: kind, Key: key, Write: true, Do: func() (any, error) {
		return nil, c.Server.Delete(kind, key, how, c.Actor)
	}}
	c.Line(call)
	return call.Err
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return statusWriter{client: c} }

type statusWriter struct {
	client.SubResourceWriter // Nil: only Patch is used.
	client                   *Client
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.client.patch(object, patch, "patch status of", true)
}
