// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// documented are the objects that stay on a worker, as docs/install.md says: by kind, the names. The CRDs and
// controllers of Kubeflow Trainer and JobSet were there before.
var documented = map[string][]string{
	"namespaces":                {"trainyard-system", "kubeflow-system"},
	"customresourcedefinitions": {"capacityreports.trainyard.dev", "executionleases.trainyard.dev"},
	"clustertrainingruntimes":   {"torch-distributed"},
	"apiservices":               {"v1alpha1.trainyard.dev"}, // The API server makes it of the CRDs.
}

// nothingIsLeft looks through all objects of the leaver, except Events, for objects that belong to Trainyard by name,
// label, namespace or kind.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	config := y.Yard.Workers[leaver].Config
	all, err := dynamic.NewForConfig(config)
	check.Must(t, err)
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	check.Must(t, err)
	lists, err := discover.ServerPreferredResources()
	check.Must(t, err)
	y.Eventually(t, func(g gomega.Gomega) { // Objects that depend on others are deleted a moment later.
		looked := 0
		for _, list := range lists {
			group, err := schema.ParseGroupVersion(list.GroupVersion)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			for i := range list.APIResources {
				resource := &list.APIResources[i]
				if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" {
					continue
				}
				found, err := all.Resource(group.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
				g.Expect(err).NotTo(gomega.HaveOccurred())
				looked += len(found.Items)
				for j := range found.Items {
					object := &found.Items[j]
					if isOurs(object) {
						g.Expect(documented[resource.Name]).To(gomega.ContainElement(object.GetName()),
							"%s %s/%s is left, and not documented", resource.Name, object.GetNamespace(), object.GetName())
					}
				}
			}
		}
		g.Expect(looked).To(gomega.BeNumerically(">", 100), "these cannot be all objects of a cluster")
	})
}

func isOurs(object metav1.Object) bool {
	switch {
	case object.GetName() == "kube-root-ca.crt", object.GetName() == "default":
		return false // Each namespace has them.
	case slices.Contains(documented["namespaces"], object.GetNamespace()), strings.Contains(object.GetName(), "trainyard"):
		return true
	}
	for key, value := range object.GetLabels() {
		if strings.Contains(key, "trainyard") || strings.Contains(value, "trainyard") {
			return true
		}
	}
	return slices.ContainsFunc(object.GetFinalizers(), func(name string) bool { return strings.Contains(name, "trainyard") }) ||
		object.GetNamespace() == metav1.NamespaceDefault && strings.HasPrefix(object.GetName(), "drained-")
}

// ranOnce reads in the audit logs that a job's copy was created once on each worker, and that the first one was
// deleted, with all its pods, before the second was created.
func ranOnce(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	created := map[string]time.Time{}
	for _, worker := range []string{leaver, stayer} {
		creations := successes(t, y.Yard.Workers[worker], "create", "trainjobs", func(name string) bool { return name == job.Name })
		if len(creations) != 1 {
			t.Fatalf("the copy of %s was created %d times on %s", job.Name, len(creations), worker)
		}
		created[worker] = creations[0]
	}
	ofJob := func(name string) bool { return strings.HasPrefix(name, job.Name+"-node-") }
	gone := successes(t, y.Yard.Workers[leaver], "delete", "pods", ofJob)
	if len(gone) == 0 {
		t.Fatalf("the pods of %s were not deleted on the worker that has left", job.Name)
	}
	if last := slices.MaxFunc(gone, time.Time.Compare); !last.Before(created[stayer]) {
		t.Errorf("a pod of %s was deleted at %s, after the next copy was created at %s", job.Name, last, created[stayer])
	}
	g := gomega.NewWithT(t)
	d := y.DispatchOf(g, job)
	g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
	g.Expect(y.PodsOf(g, leaver, job)).To(gomega.BeEmpty())
}

// successes are the times of successful requests, by the audit log of an API server.
func successes(t *testing.T, cluster *clusters.Cluster, verb, resource string, name func(string) bool) []time.Time {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	check.Must(t, err)
	defer file.Close()
	var times []time.Time
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // The end, perhaps in the middle of a line.
			return times
		}
		var event auditv1.Event
		check.Must(t, json.Unmarshal(line, &event))
		of := event.ObjectRef
		if event.Stage != auditv1.StageResponseComplete || event.Verb != verb || of == nil || of.Resource != resource || of.Subresource != "" ||
			!name(of.Name) || event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 {
			continue
		}
		times = append(times, event.StageTimestamp.Time)
	}
}
