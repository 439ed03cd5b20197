// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/test/check"
)

// TestBaseline starts two clusters at the same time, with the same new baseline, and then one without CRDs.
func TestBaseline(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "crd.yaml"), []byte(widgets), 0o600))
	all, err := StartAll(t.Context(), Options{Name: "one", CRDs: []string{dir}}, Options{Name: "two", CRDs: []string{dir}})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, StopAll(all...)) })
	identities := map[string]string{}
	for _, c := range all {
		kind := c.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
		if _, err := kind.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("cluster %q does not have the CRD: %v", c.Name, err)
		}
		namespace, err := c.kubernetes.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		check.Must(t, err)
		if other := identities[string(namespace.UID)]; other != "" {
			t.Errorf("clusters %q and %q have the same identity %s", c.Name, other, namespace.UID)
		}
		identities[string(namespace.UID)] = c.Name
		trust, err := c.kubernetes.CoreV1().ConfigMaps(metav1.NamespaceSystem).
			Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		check.Must(t, err)
		check.Equal(t, string(c.Config.CAData), trust.Data["client-ca-file"],
			"cluster %q trusts another authority than its own", c.Name)
	}
	if got := baselines(t); len(got) != 2 {
		t.Errorf("two clusters with the same CRDs have the baselines %v, want one, and the one without CRDs that it begins with", got)
	}
	startCluster(t, Options{Name: "three"})
	got := baselines(t)
	check.Equal(t, 2, len(got), "with a cluster without CRDs there are the baselines %v, want the same two", got)
	old := time.Now().Add(-baselineLife)
	check.Must(t, os.Chtimes(got[0], old, old))
	check.Must(t, removeOld(filepath.Dir(got[0])))
	if left := baselines(t); len(left) != 1 || left[0] != got[1] {
		t.Errorf("when %s is old, the baselines %v are left, want only the other", got[0], left)
	}
}

func baselines(t *testing.T) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	check.Must(t, err)
	found, err := filepath.Glob(filepath.Join(cache, baselineFolder, "????????????????"))
	check.Must(t, err)
	return found
}

// namespace makes a namespace with the name of the test.
func namespace(t *testing.T, c *Cluster) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.kubernetes.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// job returns a Job of one pod that asks for a GPU and is not tried again.
func job(name string, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{gpuContainer("train")},
				},
			},
		},
	}
}

func gpuContainer(name string) corev1.Container {
	limits := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	return corev1.Container{Name: name, Image: "example.com/train", Resources: corev1.ResourceRequirements{Limits: limits}}
}

func TestJobEndsAsItsAnnotationsSay(t *testing.T) {
	c := sharedCluster(t)
	tests := map[string]struct {
		reason       string
		annotations  map[string]string
		atLeast      time.Duration
		wantJob      batchv1.JobConditionType
		wantExitCode int32
		wantMessage  string
	}{
		"Default": {
			reason:  "a pod that says nothing runs for a second and succeeds",
			atLeast: time.Second,
			wantJob: batchv1.JobComplete,
		},
		"RunsFor": {
			reason:      "a pod runs for as long as its annotation says",
			annotations: map[string]string{RunForAnnotation: "2500ms"},
			atLeast:     2500 * time.Millisecond,
			wantJob:     batchv1.JobComplete,
		},
		"Fails": {
			reason:       "a pod fails with its annotation's words",
			annotations:  map[string]string{RunForAnnotation: "10ms", FailAnnotation: `NCCL error: "unhandled"`},
			wantJob:      batchv1.JobFailed,
			wantExitCode: 1,
			wantMessage:  `NCCL error: "unhandled"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := gomega.NewWithT(t)
			ns := namespace(t, c)
			jobs := c.kubernetes.BatchV1().Jobs(ns)
			if _, err := jobs.Create(t.Context(), job("j", tc.annotations), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			g.Eventually(func(g gomega.Gomega) {
				j, err := jobs.Get(t.Context(), "j", metav1.GetOptions{})
				g.Expect(err).NotTo(gomega.HaveOccurred())
				g.Expect(trueConditions(j)).To(gomega.ContainElement(tc.wantJob), tc.reason)
			}, deadline, tick).Should(gomega.Succeed())

			pods, err := c.kubernetes.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 {
				t.Fatalf("want one pod, got %d: %v", len(pods.Items), err)
			}
			pod := pods.Items[0]
			if !strings.HasPrefix(pod.Spec.NodeName, "gpu-") {
				t.Errorf("pod is on node %q, want one with GPUs", pod.Spec.NodeName)
			}
			ended := pod.Status.ContainerStatuses[0].State.Terminated
			got := []any{ended.ExitCode, ended.Message}
			check.Diff(t, []any{tc.wantExitCode, tc.wantMessage}, got, fmt.Sprintf("%s: exit code and message", tc.reason))
			// The API's times have whole seconds.
			if ran := ended.FinishedAt.Sub(ended.StartedAt.Time); ran < tc.atLeast-time.Second {
				t.Errorf("%s: ran for %v, want at least %v", tc.reason, ran, tc.atLeast)
			}
		})
	}
}

func trueConditions(j *batchv1.Job) []batchv1.JobConditionType {
	var all []batchv1.JobConditionType
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			all = append(all, c.Type)
		}
	}
	return all
}

func TestPodChangedWhileRunningStillEndsOnTime(t *testing.T) {
	g := gomega.NewWithT(t)
	c := sharedCluster(t)
	ns := namespace(t, c)
	pods := c.kubernetes.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), pod("p", map[string]string{RunForAnnotation: "2s"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// If the two seconds counted from the last change, each change would start them again.
	var changes int
	g.Eventually(func(g gomega.Gomega) {
		p, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		if p.Status.Phase != corev1.PodSucceeded {
			changes++
			metav1.SetMetaDataLabel(&p.ObjectMeta, "changes", strings.Repeat("x", changes))
			_, err = pods.Update(t.Context(), p, metav1.UpdateOptions{})
			g.Expect(err).NotTo(gomega.HaveOccurred())
		}
		g.Expect(p.Status.Phase).To(gomega.Equal(corev1.PodSucceeded))
	}, 20*time.Second, 500*time.Millisecond).Should(gomega.Succeed())
}

func pod(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{gpuContainer("train")}},
	}
}

// kwok drops writes that break off.
func TestPodsEndAlthoughAPIServerWasAwayThen(t *testing.T) {
	const count = 30
	g := gomega.NewWithT(t)
	c := sharedCluster(t)
	pods := c.kubernetes.CoreV1().Pods(namespace(t, c))
	for i := range count {
		p := pod(fmt.Sprintf("p-%d", i), map[string]string{RunForAnnotation: (time.Second + time.Duration(i)*20*time.Millisecond).String()})
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ended := func() (count int, err error) {
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Succeeded"})
		return len(list.Items), err
	}
	g.Eventually(ended, deadline, 10*time.Millisecond).ShouldNot(gomega.BeZero())
	check.Must(t, c.KillAPIServer())
	check.Must(t, c.StartAPIServer(t.Context()))
	g.Eventually(ended, deadline, tick).Should(gomega.Equal(count))
}
