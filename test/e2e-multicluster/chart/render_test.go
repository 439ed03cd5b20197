// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	asWorker = "hub.enabled=false,worker.enabled=true"
	asAgent  = "hub.enabled=false,workerAgent.enabled=true"
)

// modes are the ways to use the chart, and the kustomizations that are the same.
var modes = map[string]struct {
	values         string
	kustomizations []string
}{
	"Hub":    {values: "namespace.create=true", kustomizations: []string{"hub"}},
	"Worker": {values: asWorker + ",namespace.create=true", kustomizations: []string{"worker"}},
	"Agent":  {values: asAgent, kustomizations: []string{"worker-agent"}},
	"HubWithOptions": {
		values: "namespace.create=true,networkPolicy.enabled=true," +
			"hub.kueue.dispatcher=true,hub.kueue.admissionCheck=true,monitoring.enabled=true," +
			"hub.clusterProfiles.namespace=cluster-inventory",
		kustomizations: []string{
			"hub", "network-policy/hub", "kueue-dispatcher/hub", "kueue-admission-check", "monitoring/hub", "cluster-profiles",
		},
	},
	"WorkerWithOptions": {
		values:         asWorker + ",namespace.create=true,worker.kueue.quota=true,worker.kueue.dispatcher=true",
		kustomizations: []string{"worker", "worker-kueue", "kueue-dispatcher/worker"},
	},
	"AgentWithOptions": {
		values: asAgent + ",networkPolicy.enabled=true,workerAgent.kueue.quota=true,monitoring.enabled=true",
		kustomizations: []string{
			"worker-agent", "network-policy/worker-agent", "worker-agent-kueue", "monitoring/worker",
		},
	},
	"All": {
		values:         "worker.enabled=true,workerAgent.enabled=true,namespace.create=true",
		kustomizations: []string{"hub", "worker", "worker-agent"},
	},
}

// flags are what the options change in Deployments, where a user of kustomize adds the flag by hand.
var flags = map[string][]any{
	"HubWithOptions":   {"--kueue-dispatcher", "--kueue-admission-check", "--cluster-profiles=cluster-inventory"},
	"AgentWithOptions": {"--kueue-quota"},
}

// TestSameAsKustomize checks that the chart renders what the kustomizations render, except labels of Helm.
func TestSameAsKustomize(t *testing.T) {
	checkComplete(t)
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			out, err := render(t, mode.values)
			check.Must(t, err)
			var manifests []string
			for _, kustomization := range mode.kustomizations {
				manifests = append(manifests, kubectl(t, "kustomize", filepath.Join(root, "config", kustomization)))
			}
			want := parse(t, strings.Join(manifests, "\n---\n"))
			for _, object := range want {
				if object["kind"] == "Deployment" {
					addFlags(t, object, flags[name])
				}
			}
			check.Diff(t, want, parse(t, out), "the chart differs from config/ (-config +chart)")
		})
	}
}

// checkComplete checks that no kustomization is forgotten.
func checkComplete(t *testing.T) {
	t.Helper()
	rendered := map[string]bool{}
	for _, mode := range modes {
		for _, kustomization := range mode.kustomizations {
			rendered[kustomization] = true
		}
	}
	for _, part := range []string{"namespace", "crd", "rbac", "users", "manager", "admission", "crd/worker", "webhook", "webhook-hub"} {
		rendered[part] = true // Others include them.
	}
	for _, other := range []string{"samples", "crd/trainjob-any-manager"} {
		rendered[other] = true // The first are examples, and the second is a change of Kubeflow Trainer's CRD.
	}
	for _, pattern := range []string{"*/kustomization.yaml", "*/*/kustomization.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, "config", pattern))
		check.Must(t, err)
		for _, path := range found {
			part, err := filepath.Rel(filepath.Join(root, "config"), filepath.Dir(path))
			check.Must(t, err)
			if !rendered[part] {
				t.Errorf("no mode of the chart is compared with config/%s", part)
			}
		}
	}
}

// parse returns objects by kind, namespace and name, without what Helm adds. Objects that are there twice are equal.
func parse(t *testing.T, manifests string) map[string]map[string]any {
	t.Helper()
	objects, err := clusters.ParseObjects([]byte(manifests))
	check.Must(t, err)
	all := map[string]map[string]any{}
	for _, object := range objects {
		labels, annotations := object.GetLabels(), object.GetAnnotations()
		for _, label := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			delete(labels, label)
		}
		delete(annotations, "helm.sh/resource-policy")
		set(object, "labels", labels)
		set(object, "annotations", annotations)
		key := strings.Join([]string{object.GetKind(), object.GetNamespace(), object.GetName()}, " ")
		if before, ok := all[key]; ok {
			check.Diff(t, before, object.Object, fmt.Sprintf("%s is there twice, and differs", key))
		}
		all[key] = object.Object
	}
	return all
}

// set sets labels or annotations, or removes the empty map.
func set(object *unstructured.Unstructured, field string, values map[string]string) {
	if len(values) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
		return
	}
	metadata := object.Object["metadata"].(map[string]any)
	metadata[field] = maps.Clone(values)
}

func addFlags(t *testing.T, deployment map[string]any, flags []any) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	check.Must(t, err)
	container := containers[0].(map[string]any)
	container["args"] = slices.Concat(container["args"].([]any), flags)
	check.Must(t, unstructured.SetNestedSlice(deployment, containers, "spec", "template", "spec", "containers"))
}

// TestBadValues checks that wrong values are named with what would be right.
func TestBadValues(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"WrongType":   {values: "hub.replicas=two", want: "at '/hub/replicas': got string, want integer"},
		"UnknownKey":  {values: "hub.replica=2", want: "at '/hub': additional properties 'replica' not allowed"},
		"UnknownPart": {values: "manager.enabled=true", want: "additional properties 'manager' not allowed"},
		"NotOneOf": {
			values: "hub.image.pullPolicy=Alway",
			want:   "at '/hub/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
		},
		"NoFlag": {values: "hub.args={managed-by}", want: "at '/hub/args/0': 'managed-by' does not match pattern '^-'"},
		"Nothing": {
			values: "hub.enabled=false",
			want:   "hub.enabled, worker.enabled and workerAgent.enabled are all false: set at least one of them",
		},
		"TagAndDigest": {
			values: "hub.image.tag=v1,hub.image.digest=sha256:" + strings.Repeat("0", 64),
			want:   `hub.image.tag is "v1" and hub.image.digest is "sha256:` + strings.Repeat("0", 64) + `": set only one of them`,
		},
		"OptionOfNothing": {
			values: "worker.kueue.quota=true",
			want:   "worker.kueue.quota is true, and worker.enabled is false: set worker.enabled, or leave the option out",
		},
		"CertificateOfNobody": {
			values: asAgent + ",workerAgent.webhooks.certSecret=mine",
			want:   "workerAgent.webhooks.certSecret is set: set caBundle too",
		},
		"CertificateOfTheHub": {
			values: "hub.webhooks.certSecret=mine",
			want:   "hub.webhooks.certSecret is set: set caBundle too",
		},
		"TwoAuthorities": {
			values: asAgent + ",workerAgent.webhooks.caBundle=YQ==",
			want:   "workerAgent.webhooks.caBundle is set, and certSecret is not",
		},
		"NoElection": { // Two managers would work at the same time.
			values: "hub.args={--leader-elect=false}",
			want:   `hub.args has "--leader-elect=false": leave it out`,
		},
		"NoElectionOfAgents": { // So would two agents, with one replica during an update.
			values: asAgent + ",workerAgent.replicas=1,workerAgent.args={--v=1,--leader-elect=F}",
			want:   `workerAgent.args has "--leader-elect=F": leave it out`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v\nwant one with: %s", err, tc.want)
			}
		})
	}
}

// TestOwnCertificates checks that the agent and the API server use the certificates of somebody else.
func TestOwnCertificates(t *testing.T) {
	out, err := render(t, asAgent+",workerAgent.webhooks.certSecret=mine,workerAgent.webhooks.caBundle=YQ==")
	check.Must(t, err)
	for part, want := range map[string]int{
		"secretName: mine\n": 1, "- --webhook-cert-dir=/certificates\n": 1, "--webhook-service": 0,
		"    caBundle: YQ==\n": 5,
	} {
		if got := strings.Count(out, part); got != want {
			t.Errorf("%q is there %d times, want %d", part, got, want)
		}
	}
}
