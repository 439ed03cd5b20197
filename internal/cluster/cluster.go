// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// New returns a client. It sends no request.
func New(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme(), Mapper: mapper{}})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Each reads a list in pages, and passes its objects to do. The list says of which kind it is, and stays empty.
func Each[T runtime.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, do func(T), options ...client.ListOption,
) error {
	pages := pager.New(func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject().(client.ObjectList)
		of := []client.ListOption{client.Limit(raw.Limit), client.Continue(raw.Continue)}
		return page, c.List(ctx, page, append(of, options...)...)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		do(object.(T))
		return nil
	})
}

// IsMissing is true if an object does not exist on an API server that knows its kind.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) && !IsKindMissing(err) }

// IsKindMissing is true if the API server does not know the kind. It is false if only the object is missing.
func IsKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// scheme is made once, because a server makes a client for each request.
var scheme = sync.OnceValue(Scheme)

// Scheme has the kinds that the plugin reads as Go types, from clusters and files.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, trainer.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, schedulingv1.AddToScheme,
		metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types have the same name, which a test would have found.
		}
	}
	return scheme
}

// namespaced are the kinds in namespaces that the plugin reads or writes. All its other kinds are not in namespaces.
var namespaced = []string{
	"ConfigMap", "Deployment", "Dispatch", "Event", "Lease", "LocalQueue", "PodDisruptionBudget", "ResourceQuota", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "TrainJob", "TrainingRuntime", "Workload",
}

// mapper maps the kinds of the plugin without discovery. It has the method that clients and caches need. Calls of its
// other methods panic.
type mapper struct{ meta.RESTMapper }

// RESTMapping implements meta.RESTMapper.
func (mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	gvk := kind.WithVersion(versions[0])
	mapping := &meta.RESTMapping{GroupVersionKind: gvk, Resource: ResourceOf(gvk), Scope: meta.RESTScopeRoot}
	if slices.Contains(namespaced, kind.Kind) {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, nil
}

// ResourceOf returns the resource of a kind. All kinds of the plugin but one have regular plurals.
func ResourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	if kind.Kind == "Dispatch" {
		return kind.GroupVersion().WithResource("dispatches")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

// Result says what was done with an object, or would be done.
type Result string

// The results are kubectl's words.
const (
	Created    Result = "created"
	Configured Result = "configured"
	Unchanged  Result = "unchanged"
	Deleted    Result = "deleted"
)

// Apply makes a cluster have the fields of an object. It sets the object to what the cluster has then. live is what the
// cluster had, or nil.
func Apply(
	ctx context.Context, c client.Writer, object, live *unstructured.Unstructured, options ...client.ApplyOption,
) (Result, error) {
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return "", err
	}
	return resultOf(live, object), nil
}

// Merge merges the fields of an object into live, which the cluster has. It sets the object to what the cluster has
// then.
func Merge(ctx context.Context, c client.Writer, object, live *unstructured.Unstructured) (Result, error) {
	if err := c.Patch(ctx, object, client.Merge); err != nil {
		return "", err
	}
	return resultOf(live, object), nil
}

// resultOf compares what an object was with what it is. A dry run keeps the version, so the content counts.
func resultOf(before, after *unstructured.Unstructured) Result {
	without := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0)
		delete(object.Object, "status") // The manager's.
		return object.Object
	}
	switch {
	case before == nil:
		return Created
	case equality.Semantic.DeepEqual(without(before), without(after)):
		return Unchanged
	}
	return Configured
}

// parallel is how many questions a cluster is asked at a time.
const parallel = 8

// Right is a verb on a kind of object, in a namespace or in all.
type Right authorizationv1.ResourceAttributes

// what names the objects of the right.
func (r Right) what() string {
	text := r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// Missing returns which of some rights the caller lacks, a line for each kind of object, in the order of the rights.
func Missing(ctx context.Context, c kubernetes.Interface, rights []Right) ([]string, error) {
	denied := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, r := range rights {
		group.Go(func() error {
			question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: (*authorizationv1.ResourceAttributes)(&r),
			}}
			answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask for the right to %s %s: %w", r.Verb, r.what(), err)
			}
			denied[i] = !answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var kinds []string
	verbs := map[string][]string{}
	for i, r := range rights {
		if !denied[i] {
			continue
		}
		if verbs[r.what()] == nil {
			kinds = append(kinds, r.what())
		}
		verbs[r.what()] = append(verbs[r.what()], r.Verb)
	}
	lines := make([]string, len(kinds))
	for i, kind := range kinds {
		lines[i] = kind + ": " + strings.Join(verbs[kind], ", ")
	}
	return lines, nil
}
