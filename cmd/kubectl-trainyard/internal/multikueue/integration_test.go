// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/commands"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// validity is how long the tokens of the tests are valid.
const validity = time.Hour

// environment is a hub with the kinds of Kueue, and a worker.
type environment struct {
	hub, worker *stage.Server
}

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(
		s.Hub.Cluster.InstallCRDs(ctx, filepath.Join("testdata", "kueue.yaml")),
		s.Hub.Cluster.Apply(ctx, namespaces),
	)
}, "worker")

const namespaces = `
{apiVersion: v1, kind: Namespace, metadata: {name: kueue-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: trainyard-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: research}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: vision}}
`

func TestMain(m *testing.M) { shared.Main(m) }

// kinds are the kinds that the import reads or writes.
func kinds() []client.ObjectList {
	all := []client.ObjectList{&v1alpha1.WorkerClusterList{}, &v1alpha1.DispatchPolicyList{}, &corev1.SecretList{}}
	for _, kind := range []string{"AdmissionCheck", "MultiKueueConfig", "MultiKueueCluster", "ClusterQueue", "LocalQueue", "Workload"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
		list.SetKind(kind + "List")
		all = append(all, list)
	}
	return all
}

// newEnvironment returns the shared clusters, and deletes at the end what the test has left there.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{hub: shared.Get(t).Hub, worker: shared.Get(t).Workers[0]}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, object := range e.all(ctx, t) {
			check.Must(t, client.IgnoreNotFound(e.hub.Admin.Delete(ctx, object)))
		}
	})
	return e
}

// all returns the objects of kinds.
func (e *environment) all(ctx context.Context, t *testing.T) []client.Object {
	t.Helper()
	var all []client.Object
	for _, list := range kinds() {
		check.Must(t, e.hub.Admin.List(ctx, list))
		check.Must(t, meta.EachListItem(list, func(object runtime.Object) error {
			all = append(all, object.(client.Object))
			return nil
		}))
	}
	return all
}

// versions returns the resourceVersions of all objects of kinds.
func (e *environment) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, object := range e.all(t.Context(), t) {
		versions[fmt.Sprintf("%T %s %s", object, object.GetUID(), object.GetName())] = object.GetResourceVersion()
	}
	return versions
}

func (e *environment) apply(t *testing.T, manifest string) {
	t.Helper()
	check.Must(t, e.hub.Cluster.Apply(t.Context(), manifest))
}

// run runs the plugin as an admin of a cluster.
func run(t *testing.T, cluster *clusters.Cluster, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	args = append([]string{"import", "multikueue", "--kubeconfig", cluster.KubeconfigPath}, args...)
	code = commands.Main(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &err}, "kubectl-trainyard", args)
	return code, out.String(), err.String()
}

func wantRun(t *testing.T, e *environment, wantCode int, wantOut, wantErr string, args ...string) {
	t.Helper()
	code, out, err := run(t, e.hub.Cluster, args...)
	check.Equal(t, wantCode, code, "%s: exit code", args)
	check.Diff(t, lines(wantOut), lines(out), fmt.Sprintf("%s: standard output", args))
	// A worker that is slow to answer on a busy machine is waited for, in words.
	said := slices.DeleteFunc(lines(err), func(line string) bool { return strings.HasPrefix(line, "note: asking workers ") })
	check.Diff(t, lines(wantErr), said, fmt.Sprintf("%s: standard error", args))
}

// lines splits a text, so that differences are easy to read.
func lines(text string) []string { return strings.Split(strings.TrimPrefix(text, "\n"), "\n") }

// account creates a service account on the worker, and returns a kubeconfig with its token.
func (e *environment) account(t *testing.T, name string) []byte {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	check.Must(t, e.worker.Admin.Create(t.Context(), account))
	t.Cleanup(func() { check.Must(t, e.worker.Admin.Delete(context.WithoutCancel(t.Context()), account)) })
	kubeconfig, err := e.worker.Cluster.ServiceAccountKubeconfig(t.Context(), client.ObjectKeyFromObject(account), validity)
	check.Must(t, err)
	return kubeconfig
}

// secret creates a Secret of MultiKueue, or writes it again.
func (e *environment) secret(t *testing.T, name, key string, kubeconfig []byte) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "kueue-system", "name": name},
		"stringData": map[string]any{key: string(kubeconfig)},
	}}
	check.Must(t, e.hub.Cluster.ApplyObjects(t.Context(), object))
}

// fleet is a MultiKueue with a config "fleet" of these clusters, whose kubeconfigs are in Secrets of their names, and
// the ClusterQueues team-a and team-b.
func fleet(names ...string) string {
	manifest := fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: multikueue}
spec: {controllerName: kueue.x-k8s.io/multikueue, parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: fleet}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: capacity}
spec: {controllerName: kueue.x-k8s.io/provisioning-request}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: fleet}
spec: {clusters: [%s]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec: {namespaceSelector: {}, admissionChecksStrategy: {admissionChecks: [{name: multikueue}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-b}
spec: {namespaceSelector: {}, admissionChecksStrategy: {admissionChecks: [{name: capacity, onFlavors: [spot]}, {name: multikueue}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: llm, namespace: research}
spec: {clusterQueue: team-a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: images, namespace: vision}
spec: {clusterQueue: team-b}
`, strings.Join(names, ", "))
	for _, name := range names {
		manifest += fmt.Sprintf(`
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: %s}
spec: {clusterSource: {kubeConfig: {location: %s}}}
`, name, name)
	}
	return manifest
}

// workload creates a Workload of a job.
func (e *environment) workload(t *testing.T, name, namespace, queue, kind string, finished bool) {
	t.Helper()
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
		"metadata": map[string]any{"name": name, "namespace": namespace, "ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": true,
		}}},
		"spec": map[string]any{"queueName": queue},
	}}
	check.Must(t, e.hub.Admin.Create(t.Context(), w))
	if finished {
		w.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Finished", "status": "True"}}}
		check.Must(t, e.hub.Admin.Status().Update(t.Context(), w))
	}
}

// TestClustersOfAllKinds has one cluster for each thing that can be wrong, and compares all that is printed.
func TestClustersOfAllKinds(t *testing.T) {
	e := newEnvironment(t)
	kubeconfig := e.account(t, "multikueue-sa")
	e.apply(t, fleet("west", "east", "exec", "nokey", "nosecret", "theirs"))
	e.workload(t, "a", "research", "llm", "TrainJob", false)
	e.workload(t, "b", "research", "llm", "TrainJob", true)
	e.workload(t, "c", "vision", "images", "RayJob", false)
	e.apply(t, `
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: fleet}
spec: {clusters: [west, east, exec, file, missing, nokey, nosecret, profile, theirs]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: unused}
spec: {clusters: [lonely]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: file}
spec: {clusterSource: {kubeConfig: {location: /etc/multikueue/file, locationType: Path}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: profile}
spec: {clusterSource: {clusterProfileRef: {name: gpu-profile}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: lonely}
spec: {clusterSource: {kubeConfig: {location: lonely}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: llm, namespace: vision}
spec: {clusterQueue: other}
---
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: theirs, labels: {region: east}}
spec: {connection: {kubeconfigPath: /kubeconfig}}
`)
	e.secret(t, "west", "kubeconfig", kubeconfig)
	e.secret(t, "east", "kubeconfig", kubeconfig)
	e.secret(t, "exec", "kubeconfig", []byte(strings.Replace(string(kubeconfig), "    token: ", "    exec: {command: sh}\n    token: ", 1)))
	e.secret(t, "nokey", "config", kubeconfig)
	e.secret(t, "theirs", "kubeconfig", kubeconfig)
	wantRun(t, e, 2, text(t, "all-kinds.txt"), text(t, "all-kinds-notes.txt"), "--dry-run")
}

// text returns a file of testdata.
func text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	check.Must(t, err)
	return string(data)
}

// only returns the lines that have a text.
func only(out, text string) []string {
	var found []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	check.Diff(t, want, got, what)
}

// TestImport follows an import through its repetitions.
func TestImport(t *testing.T) {
	e := newEnvironment(t)
	e.apply(t, fleet("west", "east"))
	kubeconfig := e.account(t, "hub")
	e.secret(t, "west", "kubeconfig", kubeconfig)
	e.secret(t, "east", "kubeconfig", kubeconfig)

	// Dry runs say what would be done, and do nothing.
	before := e.versions(t)
	names := []string{"secret/east-kubeconfig", "workercluster/east", "secret/west-kubeconfig", "workercluster/west", "dispatchpolicy/fleet"}
	said := func(done string) (lines []string) {
		for _, name := range names {
			lines = append(lines, name+" "+done)
		}
		return lines
	}
	for flag, done := range map[string]string{
		"--dry-run": "created (dry run)", "--dry-run=client": "created (dry run)", "--dry-run=server": "created (server dry run)",
	} {
		code, out, _ := run(t, e.hub.Cluster, flag)
		check.Equal(t, 2, code, "%s: exit code, as rights are missing", flag)
		wantLines(t, flag, only(out, "created"), said(done)...)
		_, out, _ = run(t, e.hub.Cluster, flag, "-o", "name")
		wantLines(t, flag+" -o name", only(out, "/"), "secret/east-kubeconfig", "workercluster.trainyard.dev/east",
			"secret/west-kubeconfig", "workercluster.trainyard.dev/west", "dispatchpolicy.trainyard.dev/fleet")
	}
	check.Diff(t, before, e.versions(t), "dry runs have written")

	_, out, _ := run(t, e.hub.Cluster)
	wantLines(t, "import", only(out, "created"), said("created")...)
	e.wantImported(t, kubeconfig)

	// The same again writes nothing, dry or not.
	before = e.versions(t)
	for flag, done := range map[string]string{
		"--dry-run=none": "unchanged", "--dry-run=client": "unchanged (dry run)", "--dry-run=server": "unchanged (server dry run)",
	} {
		_, out, _ = run(t, e.hub.Cluster, flag)
		wantLines(t, "again with "+flag, only(out, "unchanged"), said(done)...)
	}
	check.Diff(t, before, e.versions(t), "the same import has written")
	e.repeat(t, before)
}

// wantImported checks what an import of fleet("west", "east") has made.
func (e *environment) wantImported(t *testing.T, kubeconfig []byte) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "east"}, worker))
	connection := v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: "east-kubeconfig"}}
	check.Diff(t, connection, worker.Spec.Connection, "connection")
	check.Diff(t, map[string]string{"import.trainyard.dev/fleet": "true"}, worker.Labels, "labels")
	secret := &corev1.Secret{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Namespace: "trainyard-system", Name: "east-kubeconfig"}, secret))
	check.Diff(t, map[string][]byte{"kubeconfig": kubeconfig}, secret.Data, "Secret")
	policy := &v1alpha1.DispatchPolicy{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy))
	in := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	want := v1alpha1.DispatchPolicySpec{
		Jobs: v1alpha1.JobSelector{
			NamespaceSelector: in("kubernetes.io/metadata.name", "research", "vision"),
			Selector:          in("kueue.x-k8s.io/queue-name", "images", "llm"),
		},
		Priority: 10,
		Clusters: v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"import.trainyard.dev/fleet": "true"}}},
		Scoring:  []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Weight: 1, Order: []v1alpha1.ClusterName{"west", "east"}}},

		WorkerQueue: v1alpha1.WorkerQueueFromJob,
	}
	check.Diff(t, want, policy.Spec, "policy")
}

// repeat changes what was imported, and what MultiKueue has, and imports again.
func (e *environment) repeat(t *testing.T, before map[string]string) {
	t.Helper()
	// What others have added stays: a cordon, a label, a field of the policy.
	e.patch(t, "workercluster", "east", `{"metadata":{"labels":{"region":"east"}},"spec":{"unschedulable":true}}`)
	e.patch(t, "dispatchpolicy", "fleet", `{"spec":{"retention":"2h"}}`)
	// MultiKueue has new credentials for east, and a new config.
	kubeconfig := e.account(t, "renewed")
	e.secret(t, "east", "kubeconfig", kubeconfig)
	e.patch(t, "multikueueconfig", "fleet", `{"spec":{"clusters":["east","west"]}}`)
	for _, try := range []struct{ flag, how string }{
		{"--dry-run=client", " (dry run)"}, {"--dry-run=server", " (server dry run)"}, {"--dry-run=none", ""},
	} {
		_, out, _ := run(t, e.hub.Cluster, try.flag)
		wantLines(t, "changed, with "+try.flag, only(out, "configured"),
			"secret/east-kubeconfig configured"+try.how, "dispatchpolicy/fleet configured"+try.how)
	}
	worker, policy := &v1alpha1.WorkerCluster{}, &v1alpha1.DispatchPolicy{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "east"}, worker))
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy))
	if !worker.Spec.Unschedulable || worker.Labels["region"] != "east" || policy.Spec.Retention == nil {
		t.Errorf("the import has changed what is not its own: %+v, %+v", worker, policy)
	}
	check.Diff(t, []v1alpha1.ClusterName{"east", "west"}, policy.Spec.Scoring[0].Order, "order")
	// What others have changed stays, and the import says so.
	e.patch(t, "workercluster", "west", `{"spec":{"connection":{"kubeconfigSecretRef":{"name":"better"}}}}`)
	code, out, _ := run(t, e.hub.Cluster)
	check.Equal(t, 2, code, "exit code")
	wantLines(t, "edited", only(out, "not changed"), `workercluster/west not changed: somebody has changed it since the import: `+
		`conflict with "kubectl-patch" using trainyard.dev/v1alpha1: .spec.connection.kubeconfigSecretRef.name`)
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "west"}, worker))
	check.Equal(t, "better", worker.Spec.Connection.KubeconfigSecretRef.Name, "the Secret of west")
	// Nothing is deleted.
	e.patch(t, "multikueueconfig", "fleet", `{"spec":{"clusters":["west"]}}`)
	run(t, e.hub.Cluster)
	after := e.versions(t)
	for name := range before {
		if after[name] == "" {
			t.Errorf("%s was deleted", name)
		}
	}
}

// patch changes an object as kubectl does.
func (e *environment) patch(t *testing.T, kind, name, patch string) {
	t.Helper()
	_, err := e.hub.Cluster.Kubectl(t.Context(), "patch", kind, name, "--type=merge", "--patch="+patch)
	check.Must(t, err)
}

// TestObjectsOfOthers checks that the import leaves alone what another admin has made under its names.
func TestObjectsOfOthers(t *testing.T) {
	e := newEnvironment(t)
	e.apply(t, fleet("east", "north", "west"))
	kubeconfig := e.account(t, "hub")
	for _, name := range []string{"east", "north", "west"} {
		e.secret(t, name, "kubeconfig", kubeconfig)
	}
	e.apply(t, `
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: east}
spec: {connection: {kubeconfigPath: /kubeconfig}}
---
apiVersion: trainyard.dev/v1alpha1
kind: DispatchPolicy
metadata: {name: fleet}
---
apiVersion: v1
kind: Secret
metadata: {name: west-kubeconfig, namespace: trainyard-system}
`)
	before := e.versions(t)
	code, out, _ := run(t, e.hub.Cluster)
	check.Equal(t, 2, code, "exit code")
	wantLines(t, "made", only(out, "created"), "secret/north-kubeconfig created", "workercluster/north created")
	wantLines(t, "kept", only(out, "not changed"),
		"workercluster/east not changed: this command has not made it; to let the imported policy select it, run:")
	wantLines(t, "refused", only(out, "not imported"),
		`multikueuecluster/west not imported: there is a Secret "west-kubeconfig" in namespace "trainyard-system" already, and this command has not made it: `+
			"delete it, or give it another name")
	wantLines(t, "policy", only(out, "has no policy"), "multikueueconfig/fleet has no policy: a DispatchPolicy of this name is there, "+
		"and this command has not made it: give it another name, and repeat the import")
	after := e.versions(t)
	for name, version := range before {
		check.Equal(t, version, after[name], "%s was changed", name)
	}
	// The printed command is all that is missing for the other WorkerCluster.
	e.shell(t, only(out, "kubectl label workercluster east")[0])
	_, out, _ = run(t, e.hub.Cluster)
	wantLines(t, "labelled", only(out, "workercluster/east"), "workercluster/east kept: this command has not made it")
}

// shell runs a printed command against the hub.
func (e *environment) shell(t *testing.T, command string) {
	t.Helper()
	script := exec.CommandContext(t.Context(), "bash", "-c", command)
	bin, err := filepath.Abs("../../../../bin")
	check.Must(t, err)
	script.Env = append(os.Environ(), "KUBECONFIG="+e.hub.Cluster.KubeconfigPath, "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// sampleRights are the rights that MultiKueue's documentation gives to its service account, for TrainJobs.
const sampleRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: multikueue-role}
rules:
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [create, delete, get, list, watch]}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [create, delete, get, list, watch]}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [create, delete, get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: multikueue-role}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: multikueue-role}
subjects: [{kind: ServiceAccount, namespace: default, name: multikueue-sa}]
`

// TestRightsOnWorkers follows the printed commands until no right is missing. docs/kubectl.md has the first output.
func TestRightsOnWorkers(t *testing.T) {
	e := newEnvironment(t)
	e.apply(t, fleet("east"))
	for _, name := range []string{"clusterqueue/team-b", "localqueue/images --namespace=vision"} {
		_, err := e.hub.Cluster.Kubectl(t.Context(), append([]string{"delete"}, strings.Fields(name)...)...)
		check.Must(t, err)
	}
	e.workload(t, "llama", "research", "llm", "TrainJob", false)
	e.apply(t, "{apiVersion: trainyard.dev/v1alpha1, kind: DispatchPolicy, metadata: {name: everything-else}}")
	check.Must(t, e.worker.Cluster.Apply(t.Context(), sampleRights))
	e.secret(t, "east", "kubeconfig", e.account(t, "multikueue-sa"))
	var code int
	var out string
	check.Eventually(t, "have the rights of MultiKueue", func(g gomega.Gomega) {
		code, out, _ = run(t, e.hub.Cluster, "--dry-run")
		g.Expect(out).To(gomega.ContainSubstring("trainjobs.trainer.kubeflow.org: patch\n"))
	})
	wantLines(t, "example", lines(out), lines(text(t, "example.txt"))...)
	commands := only(out, "$ kubectl --context east")
	if code != 2 || len(commands) != 2 {
		t.Fatalf("exit code %d, want 2 and commands that grant the rights:\n%s", code, out)
	}
	check.Must(t, e.worker.Cluster.ApplyFiles(t.Context(), "../../../../config/worker/cluster_role.yaml"))
	_, err := e.worker.Cluster.Kubectl(t.Context(), strings.Fields(strings.TrimPrefix(commands[1], "$ kubectl --context east "))...)
	check.Must(t, err)
	var waits string
	check.Eventually(t, "have all rights", func(g gomega.Gomega) {
		code, out, waits = run(t, e.hub.Cluster)
		g.Expect(code).To(gomega.Equal(0))
	})
	if want := "note: asking workers which rights the credentials have; these have not answered yet: east\n"; strings.Count(waits, want) != 1 {
		t.Errorf("stderr does not have %q once: %q", want, waits)
	}
	wantLines(t, "rights", only(out, "Worker east"), "Worker east: system:serviceaccount:default:multikueue-sa has all rights that Trainyard needs")
	// Nobody answers.
	kubeconfig := e.account(t, "unreachable")
	e.secret(t, "east", "kubeconfig", regexp.MustCompile(`https://\S+`).ReplaceAll(kubeconfig, []byte("https://127.0.0.1:1")))
	code, out, _ = run(t, e.hub.Cluster)
	if code != 2 || len(only(out, "Worker east: unknown, because it does not answer from here: ")) != 1 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestCutOver runs the printed steps on the hub, there and back. The test writes what Kueue would write.
func TestCutOver(t *testing.T) {
	e := newEnvironment(t)
	e.apply(t, fleet("east"))
	e.secret(t, "east", "kubeconfig", e.account(t, "hub"))
	_, out, _ := run(t, e.hub.Cluster)
	before := e.checks(t, "team-b")
	e.ready(t, "east")
	e.follow(t, out, "team-b", "To Trainyard:", "Back to MultiKueue:")
	wantLines(t, "checks after the cut-over", e.checks(t, "team-b"), "capacity")
	wantLines(t, "checks of the other queue", e.checks(t, "team-a"), "multikueue")

	// The policy still selects the jobs of both queues, and the way back is still known.
	policy := &v1alpha1.DispatchPolicy{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy))
	_, out, _ = run(t, e.hub.Cluster)
	wantLines(t, "import after the cut-over", only(out, "dispatchpolicy/"), "dispatchpolicy/fleet unchanged")
	wantLines(t, "state", only(out, "ClusterQueue team-b "), "ClusterQueue team-b (MultiKueueConfig fleet) is not dispatched by MultiKueue any more")
	e.follow(t, out, "team-b", "Back to MultiKueue:", "ClusterQueue")
	check.Diff(t, before, e.checks(t, "team-b"), "checks after the way back")
}

// follow runs the commands of a ClusterQueue between two titles.
func (e *environment) follow(t *testing.T, out, queue, from, to string) {
	t.Helper()
	_, part, _ := strings.Cut(out, "ClusterQueue "+queue+" ")
	_, part, _ = strings.Cut(part, from)
	part, _, _ = strings.Cut(part, to)
	steps := only(part, "$ ")
	if len(steps) < 4 {
		t.Fatalf("steps of %s: %q", queue, steps)
	}
	for _, step := range steps {
		e.shell(t, strings.TrimPrefix(step, "$ "))
		if strings.Contains(step, "Hold") {
			e.stopped(t, queue)
		}
	}
}

// stopped writes the status of a ClusterQueue that Kueue has stopped, and that has no jobs.
func (e *environment) stopped(t *testing.T, queue string) {
	t.Helper()
	object := e.queue(t, queue)
	object.Object["status"] = map[string]any{
		"conditions": []any{map[string]any{
			"type": "Active", "status": "False", "reason": "Stopped", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}},
		"reservingWorkloads": int64(0), "pendingWorkloads": int64(1), "admittedWorkloads": int64(0),
	}
	check.Must(t, e.hub.Admin.Status().Update(t.Context(), object))
}

// ready writes the status of a worker to which the manager is connected.
func (e *environment) ready(t *testing.T, name string) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: name}, worker))
	worker.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, LastTransitionTime: metav1.Now(),
	}}
	check.Must(t, e.hub.Admin.Status().Update(t.Context(), worker))
}

func (e *environment) queue(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	object.SetKind("ClusterQueue")
	check.Must(t, e.hub.Admin.Get(t.Context(), client.ObjectKey{Name: name}, object))
	return object
}

// checks returns the AdmissionChecks of a ClusterQueue that is not stopped.
func (e *environment) checks(t *testing.T, queue string) []string {
	t.Helper()
	object := e.queue(t, queue)
	if policy, _, _ := unstructured.NestedString(object.Object, "spec", "stopPolicy"); policy != "None" {
		t.Errorf("the stopPolicy of %s is %q", queue, policy)
	}
	checks, _, err := unstructured.NestedSlice(object.Object, "spec", "admissionChecksStrategy", "admissionChecks")
	check.Must(t, err)
	var names []string
	for _, c := range checks {
		names = append(names, c.(map[string]any)["name"].(string))
	}
	return names
}

// TestErrors checks what is said where there is nothing to import, or not enough rights.
func TestErrors(t *testing.T) {
	e := newEnvironment(t)
	refused := func(cluster *clusters.Cluster, want string, args ...string) {
		t.Helper()
		code, out, err := run(t, cluster, args...)
		if code != 1 || out != "" || !strings.HasPrefix(err, "error: ") || !strings.Contains(err, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", args, code, out, err, want)
		}
	}
	refused(e.worker.Cluster, "this cluster (context \"worker\") has no AdmissionCheck of Kueue in version v1beta2, which Kueue has from v0.15 on; "+
		"name the hub with --context")
	refused(e.hub.Cluster, "no AdmissionCheck of this cluster has the controller kueue.x-k8s.io/multikueue, so MultiKueue dispatches nothing here")
	refused(e.hub.Cluster, "invalid dry-run value (yes): must be none, client, server", "--dry-run=yes")
	refused(e.hub.Cluster, "unable to match a printer", "-o", "table")
	refused(e.hub.Cluster, `unknown command "east"`, "east")
	e.apply(t, fleet("east"))
	e.secret(t, "east", "kubeconfig", e.account(t, "hub"))
	refused(e.hub.Cluster, `cannot list resource "admissionchecks"`, "--as=nobody")
	code, out, err := run(t, e.hub.Cluster, "--namespace", "elsewhere")
	if code != 1 || !strings.Contains(err, `error: apply Secret "east-kubeconfig": namespaces "elsewhere" not found`) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
	}
	wantLines(t, "made without a Secret", only(out, "created"), "dispatchpolicy/fleet created")
}

// TestRightsOfTheUser checks that the rights in the help are enough.
func TestRightsOfTheUser(t *testing.T) {
	e := newEnvironment(t)
	e.apply(t, fleet("east"))
	e.secret(t, "east", "kubeconfig", e.account(t, "hub"))
	e.apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: importer}
rules:
- apiGroups: [kueue.x-k8s.io]
  resources: [admissionchecks, multikueueconfigs, multikueueclusters, clusterqueues, localqueues, workloads]
  verbs: [list]
- {apiGroups: [trainyard.dev], resources: [workerclusters, dispatchpolicies], verbs: [list, create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: importer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: importer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: importer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: importer, namespace: kueue-system}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: importer, namespace: kueue-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: importer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: importer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: importer, namespace: trainyard-system}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: importer, namespace: trainyard-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: importer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: importer}]
`)
	for _, want := range []string{"created", "unchanged"} {
		check.Eventually(t, "import with the rights of the help", func(g gomega.Gomega) {
			_, out, err := run(t, e.hub.Cluster, "--as=importer")
			g.Expect(err).NotTo(gomega.ContainSubstring("error:"))
			g.Expect(only(out, want)).To(gomega.HaveLen(3), out)
		})
	}
}
