// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
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
	"Worker": {values: asWorker + ",namespace.create=true,worker.logs=false", kustomizations: []string{"worker"}},
	"Agent":  {values: asAgent, kustomizations: []string{"worker-agent"}},
	"HubWithOptions": {
		values: "namespace.create=true,networkPolicy.enabled=true," +
			"hub.lookup=true,hub.dependencies=true,hub.kueue.dispatcher=true,hub.kueue.admissionCheck=true,monitoring.enabled=true," +
			"hub.users.runtimes=true,hub.gateway.url=https://gateway.example.com," +
			"hub.clusterProfiles.namespace=cluster-inventory,hub.accelerators={example.com/npu=Device}",
		kustomizations: []string{
			"hub", "network-policy/hub", "kueue-dispatcher/hub", "kueue-admission-check", "monitoring/hub", "cluster-profiles",
			"users-runtimes", "dependencies",
		},
	},
	"WorkerWithOptions": {
		values:         asWorker + ",namespace.create=true,worker.exec=true,worker.lookup=true,worker.dependencies=true,worker.pins=true,worker.kueue.quota=true,worker.kueue.dispatcher=true",
		kustomizations: []string{"worker", "worker-logs", "worker-exec", "worker-lookup", "worker-dependencies", "worker-pins", "worker-kueue", "kueue-dispatcher/worker"},
	},
	"AgentWithOptions": {
		values: asAgent + ",networkPolicy.enabled=true,workerAgent.kueue.quota=true,monitoring.enabled=true",
		kustomizations: []string{
			"worker-agent", "network-policy/worker-agent", "worker-agent-kueue", "monitoring/worker",
		},
	},
	"All": {
		values:         "worker.enabled=true,workerAgent.enabled=true,namespace.create=true",
		kustomizations: []string{"hub", "worker", "worker-logs", "worker-agent"},
	},
}

// flags are what the options change in Deployments, where a user of kustomize adds the flag by hand.
var flags = map[string][]any{
	"HubWithOptions":   {"--gateway-url=https://gateway.example.com", "--kueue-dispatcher", "--kueue-admission-check", "--lookup", "--dependencies", "--cluster-profiles=cluster-inventory", "--accelerators=example.com/npu=Device"},
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
	for _, part := range []string{"namespace", "crd", "rbac", "users", "manager", "admission", "crd/worker", "webhook", "webhook-hub", "gateway"} {
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
		"PinsOfAnybody": {
			values: asWorker + ",worker.pins=true,admissionPolicies.enabled=false",
			want:   "worker.pins is true, and admissionPolicies.enabled is false: whoever has the hub's token could mark any TrainingRuntime as pinned",
		},
		"ExecOfNothing": {values: "worker.exec=true", want: "worker.exec is true, and worker.enabled is false: set worker.enabled, or leave the option out"},
		"AddressOfNoGateway": {
			values: "hub.gateway.enabled=false,hub.gateway.url=https://gateway.example.com",
			want:   `hub.gateway.url is "https://gateway.example.com", and hub.gateway.enabled is false: set only one of them`,
		},
		"NoURL": {values: "hub.gateway.url=gateway.example.com", want: "at '/hub/gateway/url': 'gateway.example.com' does not match pattern"},
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
		"LogsNowhere": {
			values: "hub.args={--log-archive-dir=/logs}",
			want:   `hub.args has "--log-archive-dir=/logs", and hub.volumeMounts has no volume there: the container has a read-only file system`,
		},
		"LogsElsewhere": {
			values: "hub.args={--log-archive-dir=/tmp/logs},hub.volumeMounts[0].name=east,hub.volumeMounts[0].mountPath=/tmp/log",
			want:   `hub.args has "--log-archive-dir=/tmp/logs", and hub.volumeMounts has no volume there`,
		},
		"LogsNotShared": {
			values: "hub.replicas=2,hub.args={--log-archive-dir=/logs},hub.volumeMounts[0].name=logs,hub.volumeMounts[0].mountPath=/logs," +
				"hub.volumes[0].name=logs,hub.volumes[0].emptyDir.sizeLimit=1Gi",
			want: `hub.args has "--log-archive-dir=/logs", and the 2 replicas do not share volume "logs": take a PersistentVolumeClaim with ReadWriteMany, or --log-archive-url`,
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

// TestLogArchive checks that a directory of logs on a volume that replicas share is taken, whatever other volumes there
// are, and that one replica may have any volume.
func TestLogArchive(t *testing.T) {
	const args = "hub.args={--log-archive-dir=/var/lib/logs/hub-1/}"
	const mounts = `hub.volumeMounts=[{"name":"scratch","mountPath":"/var/lib"},{"name":"logs","mountPath":"/var/lib/logs/"}]`
	const scratch, shared = `{"name":"scratch","emptyDir":{}}`, `{"name":"logs","persistentVolumeClaim":{"claimName":"logs"}}`
	for name, tc := range map[string]struct{ replicas, volumes string }{
		"Shared":     {replicas: "2", volumes: scratch + "," + shared},
		"OneReplica": {replicas: "1", volumes: scratch + `,{"name":"logs","emptyDir":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, "template", "trainyard", filepath.Join(root, "charts/trainyard"), "--namespace", hubNamespace,
				"--set", args+",hub.replicas="+tc.replicas, "--set-json", mounts, "--set-json", "hub.volumes=["+tc.volumes+"]")
			check.Must(t, err)
			check.Equal(t, 1, strings.Count(out, "--log-archive-dir=/var/lib/logs/hub-1/"), "how often the flag is there")
		})
	}
}

// TestEnvironment checks that both processes get more environment variables.
func TestEnvironment(t *testing.T) {
	for _, owner := range []string{"hub", "workerAgent"} {
		out, err := render(t, "workerAgent.enabled=true,"+owner+".env[0].name=OTEL_EXPORTER_OTLP_ENDPOINT,"+owner+".env[0].value=http://collector:4318")
		check.Must(t, err)
		const variable = "        - name: OTEL_EXPORTER_OTLP_ENDPOINT\n          value: http://collector:4318\n"
		check.Equal(t, 1, strings.Count(out, variable), "how often the variable of %s is there", owner)
	}
}

// TestOwnCertificates checks that the agent and the API server use the certificates of somebody else.
func TestOwnCertificates(t *testing.T) {
	out, err := render(t, asAgent+",workerAgent.webhooks.certSecret=mine,workerAgent.webhooks.caBundle=YQ==")
	check.Must(t, err)
	for part, want := range map[string]int{
		"secretName: mine\n": 1, "- --webhook-cert-dir=/certificates\n": 1, "--webhook-service": 0,
		"    caBundle: YQ==\n": 6,
	} {
		check.Equal(t, want, strings.Count(out, part), "how often %q is there", part)
	}
}

// TestGateway checks that what the options of the gateway change is what a user of kustomize changes, and nothing else.
func TestGateway(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		// patches are those of a kustomization over config/hub, as in docs/gateway.md.
		patches string
		// without is a part of config that is not there.
		without string
	}{
		"OwnCertificate": {
			values: "hub.gateway.certSecret=mine",
			patches: `
- target: {kind: Deployment, name: trainyard-manager}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/args/6, value: --gateway-cert-dir=/gateway-certificates}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: gateway-certificates, mountPath: /gateway-certificates, readOnly: true}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: gateway-certificates, secret: {secretName: mine, optional: true}}}
`,
		},
		"LoadBalancer": {
			values: "hub.gateway.service.type=LoadBalancer,hub.gateway.service.annotations.scope=internal,hub.gateway.url=https://gateway.example.com",
			patches: `
- target: {kind: Service, name: trainyard-gateway}
  patch: |-
    - {op: add, path: /spec/type, value: LoadBalancer}
    - {op: add, path: /metadata/annotations, value: {scope: internal}}
- target: {kind: Deployment, name: trainyard-manager}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--gateway-url=https://gateway.example.com"}
`,
		},
		"None": {
			values: "hub.gateway.enabled=false",
			patches: `
- target: {kind: Deployment, name: trainyard-manager}
  patch: |-
    - {op: remove, path: /spec/template/spec/containers/0/args/6}
    - {op: remove, path: /spec/template/spec/containers/0/args/5}
`,
			without: "gateway",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := parse(t, patched(t, tc.patches))
			if tc.without != "" {
				for key := range parse(t, kubectl(t, "kustomize", filepath.Join(root, "config", tc.without))) {
					delete(want, key)
				}
			}
			out, err := render(t, "namespace.create=true,"+tc.values)
			check.Must(t, err)
			check.Diff(t, want, parse(t, out), "the chart differs from config/hub with patches (-config +chart)")
		})
	}
}

// patched renders config/hub with patches.
func patched(t *testing.T, patches string) string {
	t.Helper()
	dir := t.TempDir()
	hub, err := filepath.Rel(dir, filepath.Join(root, "config/hub"))
	check.Must(t, err)
	check.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: ["+hub+"]\npatches:"+patches), 0o600))
	return kubectl(t, "kustomize", dir)
}

// people have roles in the namespace default, which has a job that waits. There is no controller that would delete
// namespaces of a test.
const people = `
apiVersion: trainyard.dev/v1alpha1
kind: Dispatch
metadata: {name: llm, namespace: default}
spec: {trainJob: {name: llm, uid: 8f1b}, attempt: 0}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admins, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainyard-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`

// testRoles checks the roles for people with requests in their names.
func testRoles(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "people.yaml")
	check.Must(t, os.WriteFile(manifest, []byte(people), 0o600))
	kubectl(t, "apply", "-f", manifest)
	defer kubectl(t, "delete", "-f", manifest)
	const status = `{"status": {"explanation": [` +
		`{"cluster": "east", "reason": "InsufficientResources", "message": "lacks 8 GPUs"}]}}`
	kubectl(t, "patch", "dispatch", "llm", "--namespace", "default", "--subresource=status", "--type=merge", "--patch", status)
	t.Run("Why", testViewer)
	admin, err := yard.NewClient(cluster)
	check.Must(t, err)
	for _, user := range []string{"viewer", "editor", "owner"} {
		t.Run(user, func(t *testing.T) {
			expectRights(t, admin, user, "default", map[string]string{
				"trainyard.dev/dispatches": read, "trainyard.dev/dispatches/status": "",
				"trainer.kubeflow.org/trainjobs": read, "trainer.kubeflow.org/trainingruntimes": read,
				"trainyard.dev/workerclusters": "", "trainyard.dev/dispatchpolicies": "", "trainyard.dev/tombstones": "",
			})
			expectRights(t, admin, user, "kube-public", map[string]string{"trainyard.dev/dispatches": ""})
		})
	}
	t.Run("operator", func(t *testing.T) { testOperator(t, admin) })
}

// read is what informers need.
const read = "get list watch"

// testViewer checks that a user of the role view reads why a job waits, and writes nothing.
func testViewer(t *testing.T) {
	const why = "jsonpath={.status.explanation[*].message}"
	eventually(t, "the aggregated role", func(g gomega.Gomega) {
		got, err := cluster.Kubectl(t.Context(), "get", "dispatch", "llm", "--namespace", "default", "--as", "viewer", "-o", why)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(string(got)).To(gomega.Equal("lacks 8 GPUs"))
	})
	for _, command := range []string{
		"get dispatches --all-namespaces",
		"delete dispatch llm --namespace default",
		"label dispatch llm --namespace default a=b",
		`patch dispatch llm --namespace default --subresource=status --type=merge --patch {"status":{"reason":"Mine"}}`,
		"create --raw /apis/trainyard.dev/v1alpha1/namespaces/default/dispatches -f -",
	} {
		_, err := cluster.Kubectl(t.Context(), append(strings.Fields(command), "--as", "viewer")...)
		if err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("kubectl %s: got error %v, want Forbidden", command, err)
		}
	}
}

// testOperator asks the API server for every verb on every kind. The commands of the plugin are tried with this role by
// the tests of the plugin.
func testOperator(t *testing.T, admin client.Client) {
	expectRights(t, admin, "operator", "default", map[string]string{
		"trainyard.dev/workerclusters":                 read + " patch",
		"trainyard.dev/dispatches":                     read,
		"trainyard.dev/tombstones":                     read,
		"trainyard.dev/dispatchpolicies":               read + " create update patch delete",
		"trainyard.dev/workerclusters/status":          "",
		"trainyard.dev/dispatches/status":              "",
		"trainyard.dev/dispatchpolicies/status":        "",
		"trainer.kubeflow.org/trainjobs":               read,
		"trainer.kubeflow.org/trainingruntimes":        "get list",
		"trainer.kubeflow.org/clustertrainingruntimes": "get list",
		"scheduling.k8s.io/priorityclasses":            "list",
		"/namespaces":                                  "get",
		"/events":                                      "list",
		"/secrets":                                     "",
		"/pods":                                        "",
		"/serviceaccounts/token":                       "",
		"coordination.k8s.io/leases":                   "",
		"rbac.authorization.k8s.io/clusterroles":       "",
	})
}

// expectRights checks that a user has exactly these rights in a namespace: verbs by group/resource/subresource. A
// controller writes aggregated roles a moment after the roles that they are made of.
func expectRights(t *testing.T, admin client.Client, user, namespace string, rights map[string]string) {
	t.Helper()
	for resource, verbs := range rights {
		group, name, _ := strings.Cut(resource, "/")
		name, subresource, _ := strings.Cut(name, "/")
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
			want := slices.Contains(strings.Fields(verbs), verb)
			eventually(t, verb+" of "+resource+" by "+user+" in "+namespace, func(g gomega.Gomega) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: name, Subresource: subresource,
					},
				}}
				g.Expect(admin.Create(t.Context(), review)).To(gomega.Succeed())
				g.Expect(review.Status.Allowed).To(gomega.Equal(want))
			})
		}
	}
}
