// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// pageSize is how many objects a page has, as in kubectl.
const pageSize = 500

// Scheme has the kinds that the plugin reads from hubs and files.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, trainer.AddToScheme, corev1.AddToScheme, schedulingv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types have the same name, which a test would have found.
		}
	}
	return scheme
}

// Hub is a hub with the rights of its user.
type Hub struct {
	client.WithWatch
	// context is the name of the kubeconfig's context, for messages. It may be empty.
	context string
}

// New returns a hub. It sends no request.
func New(config *rest.Config, contextName string) (*Hub, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme(), Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Hub{WithWatch: c, context: contextName}, nil
}

// mapper knows the few kinds, so that no discovery is needed.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(of schema.GroupVersion, kind, resource string, scope meta.RESTScope) {
		m.AddSpecific(of.WithKind(kind), of.WithResource(resource), of.WithResource(resource), scope)
	}
	add(corev1.SchemeGroupVersion, "Namespace", "namespaces", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Event", "events", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Secret", "secrets", meta.RESTScopeNamespace)
	add(schedulingv1.SchemeGroupVersion, "PriorityClass", "priorityclasses", meta.RESTScopeRoot)
	add(v1alpha1.GroupVersion, "WorkerCluster", "workerclusters", meta.RESTScopeRoot)
	add(v1alpha1.GroupVersion, "DispatchPolicy", "dispatchpolicies", meta.RESTScopeRoot)
	add(v1alpha1.GroupVersion, "Tombstone", "tombstones", meta.RESTScopeRoot)
	add(v1alpha1.GroupVersion, "Dispatch", "dispatches", meta.RESTScopeNamespace)
	add(trainer.SchemeGroupVersion, trainer.TrainJobKind, "trainjobs", meta.RESTScopeNamespace)
	add(trainer.SchemeGroupVersion, trainer.TrainingRuntimeKind, "trainingruntimes", meta.RESTScopeNamespace)
	add(trainer.SchemeGroupVersion, trainer.ClusterTrainingRuntimeKind, "clustertrainingruntimes", meta.RESTScopeRoot)
	add(kueueVersion, "AdmissionCheck", "admissionchecks", meta.RESTScopeRoot)
	add(kueueVersion, "MultiKueueConfig", "multikueueconfigs", meta.RESTScopeRoot)
	add(kueueVersion, "MultiKueueCluster", "multikueueclusters", meta.RESTScopeRoot)
	add(kueueVersion, "ClusterQueue", "clusterqueues", meta.RESTScopeRoot)
	add(kueueVersion, "LocalQueue", "localqueues", meta.RESTScopeNamespace)
	add(kueueVersion, "Workload", "workloads", meta.RESTScopeNamespace)
	return m
}

// eachPage passes all pages of a list to take. Each page is a new list, so nothing of the page before is left in it.
func eachPage[L client.ObjectList](ctx context.Context, h *Hub, namespace string, fresh func() L, take func(L)) error {
	for token := ""; ; {
		page := fresh()
		if err := h.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token)); err != nil {
			return err
		}
		take(page)
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}

// Dispatches returns the Dispatches of a namespace, or of all namespaces if it is empty.
func (h *Hub) Dispatches(ctx context.Context, namespace string) ([]v1alpha1.Dispatch, error) {
	var dispatches []v1alpha1.Dispatch
	err := eachPage(ctx, h, namespace, func() *v1alpha1.DispatchList { return &v1alpha1.DispatchList{} },
		func(page *v1alpha1.DispatchList) { dispatches = append(dispatches, page.Items...) })
	if err != nil {
		return nil, h.explain("list Dispatches", err)
	}
	return dispatches, nil
}

// JobMeta is what is known of a TrainJob without its spec.
type JobMeta struct {
	Created metav1.Time
	Labels  map[string]string
}

// Jobs returns the TrainJobs of a namespace, or of all namespaces if it is empty, by their UID.
func (h *Hub) Jobs(ctx context.Context, namespace string) (map[types.UID]JobMeta, error) {
	jobs := map[types.UID]JobMeta{}
	err := h.metadata(ctx, namespace, func(job *metav1.PartialObjectMetadata) {
		jobs[job.UID] = JobMeta{Created: job.CreationTimestamp, Labels: job.Labels}
	})
	return jobs, err
}

// Names returns the names of the TrainJobs in a namespace.
func (h *Hub) Names(ctx context.Context, namespace string) ([]string, error) {
	var names []string
	err := h.metadata(ctx, namespace, func(job *metav1.PartialObjectMetadata) { names = append(names, job.Name) })
	return names, err
}

func (h *Hub) metadata(ctx context.Context, namespace string, take func(*metav1.PartialObjectMetadata)) error {
	fresh := func() *metav1.PartialObjectMetadataList {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(trainjobs.NewList().GroupVersionKind())
		return page
	}
	err := eachPage(ctx, h, namespace, fresh, func(page *metav1.PartialObjectMetadataList) {
		for i := range page.Items {
			take(&page.Items[i])
		}
	})
	if err != nil {
		return h.explain("list TrainJobs", err)
	}
	return nil
}

// Job returns a TrainJob. If it does not exist, the error names the most similar name.
func (h *Hub) Job(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	err := h.Get(ctx, key, job)
	switch {
	case err == nil:
		return job, nil
	case isMissing(err):
		return nil, h.noJob(ctx, key)
	default:
		return nil, h.explain(fmt.Sprintf("get TrainJob %q", key.Name), err)
	}
}

// Dispatch returns the Dispatch of a TrainJob, or nil.
func (h *Hub) Dispatch(ctx context.Context, key types.NamespacedName) (*v1alpha1.Dispatch, error) {
	dispatch := &v1alpha1.Dispatch{}
	err := h.Get(ctx, key, dispatch)
	switch {
	case isMissing(err):
		return nil, nil
	case err != nil:
		return nil, h.explain(fmt.Sprintf("get Dispatch %q", key.Name), err)
	}
	return dispatch, nil
}

// Policies returns the DispatchPolicies.
func (h *Hub) Policies(ctx context.Context) ([]v1alpha1.DispatchPolicy, error) {
	list := &v1alpha1.DispatchPolicyList{}
	if err := h.List(ctx, list); err != nil {
		return nil, h.explain("list DispatchPolicies", err)
	}
	return list.Items, nil
}

// NamespaceLabels returns the labels of a namespace.
func (h *Hub) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	namespace := &corev1.Namespace{}
	if err := h.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return nil, h.explain(fmt.Sprintf("get Namespace %q", name), err)
	}
	return namespace.Labels, nil
}
