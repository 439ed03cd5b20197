// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// contents lists the objects in a namespace that can come from a TrainJob.
func (e *environment) contents(t *testing.T, namespace string) (names []string) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PodList{}, &jobsetv1alpha2.JobSetList{}, &trainer.TrainJobList{},
	} {
		check.Must(t, e.List(t.Context(), list, client.InNamespace(namespace)))
		err := meta.EachListItem(list, func(item apiruntime.Object) error {
			if name := item.(client.Object).GetName(); name != "kube-root-ca.crt" {
				names = append(names, fmt.Sprintf("%T %s", list, name))
			}
			return nil
		})
		check.Must(t, err)
	}
	return names
}

func TestDryRunLeavesNothing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	// The second runtime has a Secret and a ConfigMap.
	for _, runtime := range []string{"torch-distributed", "deepspeed-distributed"} {
		uses := func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = runtime }
		check.Equal(t, nil, e.Create(t.Context(), job(ns, "good", uses), client.DryRunAll), "%s", runtime)
		if err := e.Create(t.Context(), job(ns, strings.Repeat("a", 60), uses)); err == nil {
			t.Errorf("%s: the job with the long name was accepted", runtime)
		}
	}
	if names := e.contents(t, ns); len(names) > 0 {
		t.Errorf("something was left: %q", names)
	}
}

func TestDryRunOutageAdmitsWithWarning(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	jobSet := e.cluster.Process("jobset-manager")
	check.Must(t, jobSet.Signal(syscall.SIGSTOP))
	defer func() {
		check.Must(t, jobSet.Signal(syscall.SIGCONT))
	}()
	c, got := e.withWarnings(t)
	check.Equal(t, nil, c.Create(t.Context(), job(ns, "j"), client.DryRunAll),
		"refused while JobSet's webhook does not answer")
	if len(got.All()) == 0 || !strings.HasPrefix(got.All()[0], "cannot check the JobSet: ") {
		t.Errorf("warnings %q", got.All())
	}
}

// withRightsOf reads with one client and writes with another client and its rights.
type withRightsOf struct {
	client.Client
	writer client.Client
}

func (w withRightsOf) Apply(ctx context.Context, object apiruntime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return w.writer.Apply(ctx, object, opts...)
}

func (w withRightsOf) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return w.writer.Create(ctx, object, opts...)
}

func TestMissingRightsAdmitWithWarning(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	writer, err := client.New(config, client.Options{Scheme: e.Scheme(), Mapper: e.RESTMapper()})
	check.Must(t, err)
	v := e.validatorWith(t, withRightsOf{Client: e.manager.GetClient(), writer: writer})
	j := job(ns, "j", func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.APIGroup, j.Spec.RuntimeRef.Kind = &trainer.GroupVersion.Group, new(trainer.ClusterTrainingRuntimeKind)
	})
	warnings, err := v.ValidateCreate(t.Context(), j)
	check.Equal(t, nil, err, "refused because the agent lacks rights")
	for i, want := range []string{
		`cannot check the JobSet: jobsets.jobset.x-k8s.io "j" is forbidden: User "nobody" cannot `,
		`cannot check pods of replicated job "node": pods is forbidden: User "nobody" cannot create `,
	} {
		if i >= len(warnings) || !strings.HasPrefix(warnings[i], want) {
			t.Errorf("warning %d of %q is not %q", i, warnings, want)
		}
	}
}

// quota makes a ResourceQuota and waits until the API server enforces it.
func (e *environment) quota(t *testing.T, namespace, name string, hard corev1.ResourceList) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	e.create(t, q)
	eventually(t, "quota "+name, func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(q), q)).To(gomega.Succeed())
		g.Expect(q.Status.Hard).To(gomega.HaveLen(len(hard)))
	})
}

// useUpPods makes a pod that uses up a quota of one pod. If the API server did not know the quota yet, it counts the
// pod minutes later. So useUpPods recreates such a pod.
func (e *environment) useUpPods(t *testing.T, quota client.ObjectKey) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: quota.Namespace, Name: "other"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	eventually(t, "a pod that counts for quota "+quota.Name, func(g gomega.Gomega) {
		g.Expect(client.IgnoreNotFound(e.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))).To(gomega.Succeed())
		g.Expect(e.Create(t.Context(), pod.DeepCopy())).To(gomega.Succeed())
		q := &corev1.ResourceQuota{}
		g.Expect(e.Get(t.Context(), quota, q)).To(gomega.Succeed())
		g.Expect(q.Status.Used).To(gomega.HaveKeyWithValue(corev1.ResourcePods, gomega.HaveField("Value()", int64(1))))
	})
}

func TestQuotaThatIsUsedUpIsAWarning(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.quota(t, ns, "pods", corev1.ResourceList{"pods": resource.MustParse("1")})
	e.useUpPods(t, client.ObjectKey{Namespace: ns, Name: "pods"})
	c, got := e.withWarnings(t)
	eventually(t, "quota to be used up", func(g gomega.Gomega) {
		g.Expect(c.Create(t.Context(), job(ns, "j"), client.DryRunAll)).To(gomega.Succeed())
		g.Expect(slices.ContainsFunc(got.All(), func(w string) bool {
			return strings.HasPrefix(w, `replicated job "node": exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1: `)
		})).To(gomega.BeTrue(), "warnings: %q", got.All())
	})
}

func TestQuotaThatCanNeverDo(t *testing.T) {
	e := env(t)
	cpu := func(amount string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(amount)}}
		}
	}
	cases := map[string]struct {
		reason string
		hard   corev1.ResourceList
		change func(*trainer.TrainJob)
		want   []string
	}{
		"Fits": {"Both nodes at once do not fit, but each does.", corev1.ResourceList{"requests.cpu": resource.MustParse("2")}, cpu("1500m"), nil},
		"Pod": {
			"No pod of the job can ever be created.", corev1.ResourceList{"requests.cpu": resource.MustParse("2")}, cpu("3"),
			[]string{`spec.trainer.resourcesPerNode: Invalid value: pods of replicated job "node" are refused: exceeded quota: q, ` +
				`requested: requests.cpu=3, used: requests.cpu=0, limited: requests.cpu=2`},
		},
		"Unknown": {
			"The quota wants to be told.", corev1.ResourceList{"requests.cpu": resource.MustParse("2")}, func(*trainer.TrainJob) {},
			[]string{`spec.runtimeRef.name: Invalid value: pods of replicated job "node" are refused: failed quota: q: must specify requests.cpu`},
		},
		"JobSet": {
			"There is no JobSet without room for it.",
			corev1.ResourceList{"count/jobsets.jobset.x-k8s.io": resource.MustParse("0")}, func(*trainer.TrainJob) {},
			[]string{"metadata.namespace: Forbidden: there is no room for one more JobSet: exceeded quota: q, requested: " +
				"count/jobsets.jobset.x-k8s.io=1, used: count/jobsets.jobset.x-k8s.io=0, limited: count/jobsets.jobset.x-k8s.io=0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := e.namespace(t)
			e.quota(t, ns, "q", tc.hard)
			eventually(t, tc.reason, func(g gomega.Gomega) { // A watch tells the plugin about a quota.
				err := e.Create(t.Context(), job(ns, "j", tc.change), client.DryRunAll)
				g.Expect(err == nil).To(gomega.Equal(tc.want == nil), "%v", err)
			})
			wantFaults(t, e.Create(t.Context(), job(ns, "j", tc.change), client.DryRunAll), tc.want...)
		})
	}
}
