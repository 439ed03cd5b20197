// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
)

// DefaultNamespace is the namespace of Trainyard's manager in its manifests.
const DefaultNamespace = "trainyard-system"

// Options say where things are.
type Options struct {
	// KueueNamespace is the namespace of Kueue, with the Secrets of MultiKueue.
	KueueNamespace string
	// Namespace is the namespace of Trainyard's manager.
	Namespace string
	// Context is the context of the hub in the commands that are printed, or empty for the current one.
	Context string
}

// kubectl is how the printed commands call kubectl for the hub.
func (o Options) kubectl() string {
	if o.Context == "" {
		return "kubectl"
	}
	return "kubectl --context " + o.Context
}

// register returns the command that registers a worker with the labels of the import. It assumes that the context has
// the worker's name.
func (o Options) register(name string, configs []string) string {
	command := "kubectl trainyard join " + name + " --context " + name
	if o.Context != "" {
		command += " --hub-context " + o.Context
	}
	if o.Namespace != DefaultNamespace {
		command += " --namespace " + o.Namespace
	}
	for _, label := range labelsOf(configs) {
		command += " --label " + label + "=" + labelValue
	}
	return command
}

// Observation is what the hub has of MultiKueue and of an earlier import.
type Observation struct {
	options  Options
	checks   map[string]*kueues.AdmissionCheck
	configs  map[string]*kueues.MultiKueueConfig
	clusters map[string]*kueues.MultiKueueCluster
	queues   []*kueues.ClusterQueue
	// local are the LocalQueues by the name of their ClusterQueue.
	local map[string][]LocalQueue
	// secrets are the Secrets with MultiKueue's kubeconfigs.
	secrets map[string]*corev1.Secret
	// objects are the objects of Trainyard that have a name of the import.
	objects map[string]*unstructured.Unstructured
	// policies is the number of all DispatchPolicies.
	policies int
}

// LocalQueue is a LocalQueue of a ClusterQueue.
type LocalQueue struct {
	types.NamespacedName
	// Workloads is the number of Workloads that have not finished, by the kind of job.
	Workloads map[string]int
}

// Read reads the hub.
func Read(ctx context.Context, h *hub.Hub, options Options) (*Observation, error) {
	o := &Observation{
		options: options, checks: map[string]*kueues.AdmissionCheck{}, configs: map[string]*kueues.MultiKueueConfig{}, clusters: map[string]*kueues.MultiKueueCluster{},
		local: map[string][]LocalQueue{}, secrets: map[string]*corev1.Secret{}, objects: map[string]*unstructured.Unstructured{},
	}
	if err := o.readKueue(ctx, h); err != nil {
		return nil, err
	}
	if err := o.readTrainyard(ctx, h); err != nil {
		return nil, err
	}
	return o, o.readSecrets(ctx, h)
}

func (o *Observation) readKueue(ctx context.Context, h *hub.Hub) error {
	err := each(ctx, h, kueues.KindAdmissionCheck, func(c *kueues.AdmissionCheck) {
		if c.Spec.ControllerName == v1alpha1.ManagedByMultiKueue {
			o.checks[c.Name] = c
		}
	})
	if err != nil {
		return err
	}
	if err := each(ctx, h, kueues.KindMultiKueueConfig, func(c *kueues.MultiKueueConfig) { o.configs[c.Name] = c }); err != nil {
		return err
	}
	if err := each(ctx, h, kueues.KindMultiKueueCluster, func(c *kueues.MultiKueueCluster) { o.clusters[c.Name] = c }); err != nil {
		return err
	}
	if err := each(ctx, h, kueues.KindClusterQueue, func(q *kueues.ClusterQueue) { o.queues = append(o.queues, q) }); err != nil {
		return err
	}
	slices.SortFunc(o.queues, func(a, b *kueues.ClusterQueue) int { return cmp.Compare(a.Name, b.Name) })
	return o.readLocalQueues(ctx, h)
}

// readLocalQueues reads LocalQueues and counts their Workloads.
func (o *Observation) readLocalQueues(ctx context.Context, h *hub.Hub) error {
	counts := map[types.NamespacedName]map[string]int{}
	err := each(ctx, h, kueues.KindLocalQueue, func(q *kueues.LocalQueue) {
		key := types.NamespacedName{Namespace: q.Namespace, Name: q.Name}
		counts[key] = map[string]int{}
		o.local[q.Spec.ClusterQueue] = append(o.local[q.Spec.ClusterQueue], LocalQueue{NamespacedName: key, Workloads: counts[key]})
	})
	if err != nil {
		return err
	}
	for _, queues := range o.local {
		slices.SortFunc(queues, func(a, b LocalQueue) int { return cmp.Compare(a.String(), b.String()) })
	}
	return each(ctx, h, kueues.KindWorkload, func(w *kueues.Workload) {
		count := counts[types.NamespacedName{Namespace: w.Namespace, Name: w.Spec.QueueName}]
		if count == nil || w.Is(kueues.Finished) {
			return
		}
		kind := "?"
		if owner := metav1.GetControllerOfNoCopy(w); owner != nil {
			kind = owner.Kind
		}
		count[kind]++
	})
}

// readTrainyard reads the objects that the import may have made.
func (o *Observation) readTrainyard(ctx context.Context, h *hub.Hub) error {
	err := h.EachObject(ctx, workerKind, func(object *unstructured.Unstructured) { o.objects[keyOf(object)] = object })
	if err != nil {
		return err
	}
	return h.EachObject(ctx, policyKind, func(object *unstructured.Unstructured) {
		o.objects[keyOf(object)] = object
		o.policies++
	})
}

// readSecrets reads the Secrets that MultiKueue uses, and the Secrets of an earlier import.
func (o *Observation) readSecrets(ctx context.Context, h *hub.Hub) error {
	for name, c := range o.clusters {
		if sourceOf(c) != fromSecret {
			continue
		}
		location := c.Spec.ClusterSource.KubeConfig.Location
		secret := &corev1.Secret{}
		switch err := h.Get(ctx, types.NamespacedName{Namespace: o.options.KueueNamespace, Name: location}, secret); {
		case err == nil:
			o.secrets[location] = secret
		case !apierrors.IsNotFound(err):
			return h.Hint(fmt.Errorf("get Secret %q in namespace %q: %w", location, o.options.KueueNamespace, err))
		}
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(secretKind)
		key := types.NamespacedName{Namespace: o.options.Namespace, Name: secretName(name)}
		switch err := h.Get(ctx, key, ours); {
		case err == nil:
			o.objects[keyOf(ours)] = ours
		case !apierrors.IsNotFound(err):
			return h.Hint(fmt.Errorf("get Secret %q in namespace %q: %w", key.Name, key.Namespace, err))
		}
	}
	return nil
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// keyOf identifies an object by its kind and name: the objects of the import have no namespace, or the manager's.
func keyOf(object *unstructured.Unstructured) string {
	return key(object.GroupVersionKind(), object.GetName())
}

func key(kind schema.GroupVersionKind, name string) string { return kind.Kind + "/" + name }

// each reads all objects of a kind of Kueue.
func each[T any](ctx context.Context, h *hub.Hub, kind kueues.Kind, take func(*T)) error {
	var wrong error
	err := h.EachObject(ctx, kind.GVK(), func(object *unstructured.Unstructured) {
		read, err := kueues.Read[T](object)
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("read %s %q: %w", kind, object.GetName(), err)
		}
		take(read)
	})
	return cmp.Or(err, wrong)
}
