// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestDryRunOnTheHub: a dry run of a job on the hub gives the worker's answer, and what only the hub knows.
func TestDryRunOnTheHub(t *testing.T) {
	letSubmit(t)
	reserved := func(job *trainer.TrainJob) { job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "PET_NNODES", Value: "2"}} }
	local := func(job *trainer.TrainJob) { job.Spec.ManagedBy = ptr.To(v1alpha1.ManagedByBuiltIn) }
	const words = `spec.trainer.env[0].name: Invalid value: "PET_NNODES": reserved`
	y.Eventually(t, func(g gomega.Gomega) { // The webhooks fail open until the API server knows them.
		answer, err := try(t, y.Yard.Hub.KubeconfigPath, reserved)
		g.Expect(err).To(gomega.HaveOccurred(), answer)
	})
	// The first job brings its namespace and its runtime to the worker.
	expectWords(t, (&sickness{at: east, job: yard.Job{RunFor: "100ms"}}).submit(t, "first"), "State: Complete on worker east")
	onWorker, err := try(t, y.Yard.Workers[east].KubeconfigPath, reserved, local)
	if err == nil || !strings.Contains(onWorker, words) {
		t.Fatalf("a worker does not refuse the job: %s", onWorker)
	}

	for name, tc := range map[string]struct {
		change  func(*trainer.TrainJob)
		refused bool
		words   string
	}{
		"AsAWorker": {reserved, true, words},
		"Selector": {
			annotation(v1alpha1.AnnotationClusters, "region in"), true,
			`metadata.annotations[trainyard.dev/clusters]: Invalid value: "region in": must be a label selector`,
		},
		"TTL": {
			annotation(v1alpha1.AnnotationTTL, "1h"), true,
			`metadata.annotations[trainyard.dev/ttl-seconds-after-finished]: Invalid value: "1h": must be`,
		},
		"NoWorker": {
			annotation(v1alpha1.AnnotationClusters, "region=north"), false,
			`Warning: metadata.annotations[trainyard.dev/clusters]: "region=north" matches none of the workers`,
		},
		"TooLarge": {
			func(job *trainer.TrainJob) { job.Spec.Trainer.NumNodes = ptr.To[int32](5) }, false,
			"Warning: no worker could hold the job even if no other job ran there",
		},
		"Misspelt": {annotation("trainyard.dev/cluster", "region=east"), false, `did you mean "trainyard.dev/clusters"?`},
		"Runtime": {
			func(job *trainer.TrainJob) { job.Spec.RuntimeRef.Name = "torch-distribted" }, false, `"torch-distribted"`,
		},
		"Good": {func(*trainer.TrainJob) {}, false, "created (server dry run)"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := try(t, user, tc.change)
			t.Logf("kubectl create --dry-run=server\n%s", answer)
			if (err != nil) != tc.refused || !strings.Contains(answer, tc.words) {
				t.Errorf("got %v, want refused %v with words %q", err, tc.refused, tc.words)
			}
		})
	}
}

// TestUnmodifiedClients: jobs that name no manager run on a worker where their namespace or their policy says so. The
// hub shows what they cost.
func TestUnmodifiedClients(t *testing.T) {
	letSubmit(t)
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "unmodified"}, Spec: v1alpha1.DispatchPolicySpec{
		Jobs:          v1alpha1.JobSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"client": "sdk"}}},
		UnmanagedJobs: v1alpha1.UnmanagedDispatch,
	}}
	others := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: v1alpha1.DispatchPolicySpec{Priority: -1}}
	for _, object := range []client.Object{policy, others} { // With a policy, each job needs one.
		create(t, y.Hub, object)
	}
	sdk := func(job *trainer.TrainJob) { job.Labels = map[string]string{"client": "sdk"} }
	y.Eventually(t, func(g gomega.Gomega) {
		answer, err := try(t, user, unmanaged, sdk)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(answer).To(gomega.ContainSubstring(`because DispatchPolicy "unmodified" has spec.unmanagedJobs: Dispatch`))
	})
	byPolicy := submitAsUser(t, "by-policy", unmanaged, sdk)

	answer, err := try(t, user, unmanaged)
	if err != nil || strings.Contains(answer, "spec.managedBy") {
		t.Errorf("a job that nobody wants is dispatched: %s", answer)
	}
	label(t, v1alpha1.DispatchYes)
	byNamespace := submitAsUser(t, "by-namespace", unmanaged)
	label(t, "")

	for job, mark := range map[*trainer.TrainJob]string{byPolicy: v1alpha1.DispatchByPolicy, byNamespace: v1alpha1.DispatchByNamespace} {
		y.Eventually(t, func(g gomega.Gomega) {
			g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
		})
		check.Equal(t, mark, job.Annotations[v1alpha1.AnnotationDispatch], "%s has the annotation", job.Name)
		expectWords(t, job, "State: Complete", "Cost:", "GPU-hours")
	}
}

func unmanaged(job *trainer.TrainJob) { job.Spec.ManagedBy = nil }

func annotation(key, value string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { metav1.SetMetaDataAnnotation(&job.ObjectMeta, key, value) }
}

// letSubmit lets the user create TrainJobs in the team's namespace of the hub, until the test ends.
func letSubmit(t *testing.T) {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: team, Name: "submits-trainjobs"}
	create(t, y.Hub, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{trainer.GroupVersion.Group}, Resources: []string{"trainjobs"}, Verbs: []string{"create", "delete"},
	}}})
	create(t, y.Hub, &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: "ada"}},
	})
}

// label sets or removes the label of the team's namespace because of which all jobs are dispatched.
func label(t *testing.T, value string) {
	t.Helper()
	change := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.LabelDispatch, value)
	if value == "" {
		change = fmt.Sprintf(`{"metadata": {"labels": {%q: null}}}`, v1alpha1.LabelDispatch)
	}
	if _, err := y.Yard.Hub.Kubectl(t.Context(), "patch", "namespace", team, "--type=merge", "--patch="+change); err != nil {
		t.Fatal(err)
	}
}

// try asks an API server what it would say to a job, as kubectl prints it.
func try(t *testing.T, kubeconfig string, changes ...func(*trainer.TrainJob)) (string, error) {
	t.Helper()
	return kubectlCreate(t, kubeconfig, jobOf("tried", changes...), "--dry-run=server")
}

// submitAsUser creates a job, which is deleted when the test ends.
func submitAsUser(t *testing.T, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	job := jobOf(name, append(changes, annotation(v1alpha1.AnnotationClusters, "region="+east))...)
	answer, err := kubectlCreate(t, user, job)
	if err != nil {
		t.Fatal(answer)
	}
	t.Logf("kubectl create\n%s", answer)
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
	return job
}

func jobOf(name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	job := yard.Job{Namespace: team, Name: name, GPUs: 8, RunFor: "1s"}.TrainJob()
	job.TypeMeta = metav1.TypeMeta{APIVersion: trainer.GroupVersion.String(), Kind: trainer.TrainJobKind}
	for _, change := range changes {
		change(job)
	}
	return job
}

func kubectlCreate(t *testing.T, kubeconfig string, job *trainer.TrainJob, args ...string) (string, error) {
	t.Helper()
	manifest, err := json.Marshal(job)
	check.Must(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(cmp.Or(os.Getenv("TRAINYARD_BIN"), "../../../bin"), "kubectl"), append([]string{
		"--kubeconfig", kubeconfig, "create", "-f", "-",
	}, args...)...)
	command.Stdin = bytes.NewReader(manifest)
	answer, err := command.CombinedOutput()
	return string(answer), err
}
