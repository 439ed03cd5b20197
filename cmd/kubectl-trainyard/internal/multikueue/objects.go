// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
)

const (
	// AnnotationFrom is on the objects of the import. It has the kind and the name of the object that was imported.
	AnnotationFrom = "import.trainyard.dev/from"
	// annotationQueues is on a policy. It has the AdmissionChecks that the ClusterQueues had before the cut-over.
	annotationQueues = "import.trainyard.dev/cluster-queues"
	// labelPrefix and the name of a MultiKueueConfig are a label of the WorkerClusters that it names.
	labelPrefix = "import.trainyard.dev/"
	labelValue  = "true"
	// policyPriority is higher than the priority of a policy for all other jobs, which does not set one.
	policyPriority = 10
)

// isOf says whether the import has made an object from another object.
func isOf(object *unstructured.Unstructured, kind, name string) bool {
	return object.GetAnnotations()[AnnotationFrom] == kind+"/"+name
}

// labelsOf returns the labels that select the workers of some configs.
func labelsOf(configs []string) []string {
	labels := make([]string, len(configs))
	for i, name := range configs {
		labels[i] = labelPrefix + name
	}
	return labels
}

// secretName is the name that join gives a Secret, too.
func secretName(cluster string) string { return cluster + "-kubeconfig" }

func newObject(kind schema.GroupVersionKind, name, fromKind, from string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	object.SetAnnotations(map[string]string{AnnotationFrom: fromKind + "/" + from})
	return object
}

func secretOf(cluster, namespace string, kubeconfig []byte) *unstructured.Unstructured {
	secret := newObject(secretKind, secretName(cluster), clusterKind, cluster)
	secret.SetNamespace(namespace)
	secret.Object["type"] = string(corev1.SecretTypeOpaque)
	secret.Object["data"] = map[string]any{kubeconfigs.SecretKey: base64.StdEncoding.EncodeToString(kubeconfig)}
	return secret
}

func workerOf(name string, configs []string) *unstructured.Unstructured {
	worker := newObject(workerKind, name, clusterKind, name)
	labels := map[string]string{}
	for _, label := range labelsOf(configs) {
		labels[label] = labelValue
	}
	worker.SetLabels(labels)
	worker.Object["spec"] = map[string]any{"connection": map[string]any{"kubeconfigSecretRef": map[string]any{"name": secretName(name)}}}
	return worker
}

// policyOf returns the policy of a config: its jobs may run on its clusters, the first ones preferred.
func policyOf(name string, clusters []v1alpha1.ClusterName, jobs selection, queues []*Queue) *unstructured.Unstructured {
	policy := newObject(policyKind, name, configKind, name)
	remembered := map[string][]kueues.CheckRule{}
	for _, queue := range queues {
		remembered[queue.Name] = queue.rules
	}
	text, err := json.Marshal(remembered)
	if err != nil {
		panic(err) // Maps of strings have a JSON form.
	}
	annotations := policy.GetAnnotations()
	annotations[annotationQueues] = string(text)
	policy.SetAnnotations(annotations)
	in := func(key string, values []string) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "In", "values": list(values)}}}
	}
	policy.Object["spec"] = map[string]any{
		"jobs": map[string]any{
			"namespaceSelector": in(corev1.LabelMetadataName, jobs.namespaces()),
			"selector":          in(v1alpha1.LabelLocalQueue, jobs.names()),
		},
		"priority": int64(policyPriority),
		"clusters": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{labelPrefix + name: labelValue}}},
		"scoring":  []any{map[string]any{"name": string(v1alpha1.ScorePreference), "order": list(clusters)}},
		// MultiKueue's queues have one name on all clusters.
		"workerQueue": string(v1alpha1.WorkerQueueFromJob),
	}
	return policy
}

func list[T ~string](values []T) []any {
	all := make([]any, len(values))
	for i, value := range values {
		all[i] = string(value)
	}
	return all
}

// selection are the LocalQueues whose jobs a policy is for.
type selection []LocalQueue

func selected(queues []*Queue) selection {
	var all selection
	for _, queue := range queues {
		all = append(all, queue.LocalQueues...)
	}
	return all
}

func (s selection) namespaces() []string {
	return s.distinct(func(q LocalQueue) string { return q.Namespace })
}

func (s selection) names() []string {
	return s.distinct(func(q LocalQueue) string { return q.Name })
}

func (s selection) distinct(of func(LocalQueue) string) []string {
	values := map[string]bool{}
	for _, queue := range s {
		values[of(queue)] = true
	}
	return slices.Sorted(maps.Keys(values))
}

// others returns the LocalQueues, sorted, that a policy selects although they do not lead to one of its ClusterQueues.
func (s selection) others(local map[string][]LocalQueue, queues []*Queue) []string {
	namespaces, names := s.namespaces(), s.names()
	var others []string
	for clusterQueue, all := range local {
		if slices.ContainsFunc(queues, func(q *Queue) bool { return q.Name == clusterQueue }) {
			continue
		}
		for _, queue := range all {
			if slices.Contains(namespaces, queue.Namespace) && slices.Contains(names, queue.Name) {
				others = append(others, queue.String())
			}
		}
	}
	slices.Sort(others)
	return others
}
