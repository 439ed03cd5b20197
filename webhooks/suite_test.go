// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
	"github.com/trainyard/trainyard/webhooks/validation"
	workerwebhooks "github.com/trainyard/trainyard/webhooks/worker"
)

// waitLimit is how long a test waits for anything, on a busy machine.
const waitLimit = 60 * time.Second

// environment is a cluster that the tests share: JobSet's manager and webhooks, upstream's CRDs and runtimes, two
// simulated nodes, the TrainJob controller, and the webhooks of the agent in the test's process.
type environment struct {
	client.Client // with the rights of an admin, without a cache
	server        *stage.Server
	cluster       *clusters.Cluster
	manager       ctrl.Manager
}

var shared = stage.ShareWith(startEnvironment)

func TestMain(m *testing.M) { shared.Main(m) }

// env returns the shared environment. The first test that asks for it starts it.
func env(t *testing.T) *environment {
	t.Helper()
	return shared.Get(t)
}

func startEnvironment(ctx context.Context, cleanup func(func() error)) (*environment, error) {
	options := clusters.Full("webhooks", clusters.NodeShape{Count: 2})
	options.APIServerArgs = append(options.APIServerArgs, "--enable-admission-plugins=ExtendedResourceToleration")
	server, err := stage.StartServer(ctx, cleanup, options)
	if err != nil {
		return nil, err
	}
	e := &environment{Client: server.Admin, server: server, cluster: server.Cluster}
	err = e.cluster.ApplyTrainerRuntimes(ctx, "torch_distributed.yaml", "deepspeed_distributed.yaml", "jax_distributed.yaml",
		"xgboost_distributed.yaml", "torchtune/llama3_2")
	if err != nil {
		return e, err
	}
	return e, e.startManager(ctx, cleanup)
}

// startManager serves the webhooks and runs the TrainJob controller. Then it tells the API server of the webhooks.
func (e *environment) startManager(ctx context.Context, cleanup func(func() error)) error {
	scheme := apiruntime.NewScheme()
	if err := trainjob.AddToScheme(scheme); err != nil {
		return err
	}
	server, err := e.cluster.NewWebhookServer("trainyard")
	if err != nil {
		return err
	}
	webhookServer := webhook.NewServer(webhook.Options{Host: server.Host, Port: server.Port, CertDir: server.CertDir})
	config := rest.CopyConfig(e.cluster.Config)
	config.QPS, config.Burst = 500, 1000
	e.manager, err = ctrl.NewManager(config, ctrl.Options{
		Scheme:        scheme,
		Cache:         trainjob.CacheOptions(),
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhookServer,
	})
	if err != nil {
		return err
	}
	if err := trainjob.Add(ctx, e.manager, trainjob.Options{SkipNameValidation: true}); err != nil {
		return err
	}
	if err := workerwebhooks.Add(ctx, e.manager, workerwebhooks.Options{NewRuntimes: trainjob.NewRuntimes}); err != nil {
		return err
	}
	cleanup(stage.Run(e.manager))
	if !e.manager.GetCache().WaitForCacheSync(ctx) {
		return errors.New("wait for the manager's caches")
	}
	if err := waitFor(ctx, func() error { return webhookServer.StartedChecker()(nil) }); err != nil {
		return fmt.Errorf("wait for the webhook server: %w", err)
	}
	configurations, err := clusters.ReadObjects("../config/webhook/mutating.yaml", "../config/webhook/validating.yaml")
	if err != nil {
		return err
	}
	if err := clusters.WebhookURLs(server, configurations...); err != nil {
		return err
	}
	if err := e.cluster.ApplyObjects(ctx, configurations...); err != nil {
		return err
	}
	return e.awaitWebhooks(ctx)
}

// awaitWebhooks returns when the API server, which learns of webhooks by a watch, calls the TrainJob validator.
func (e *environment) awaitWebhooks(ctx context.Context) error {
	return waitFor(ctx, func() error {
		job := &trainer.TrainJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "no-such-runtime"}},
		}
		err := e.Create(ctx, job, client.DryRunAll)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("create a TrainJob without a runtime: %w", err)
	})
}

func waitFor(ctx context.Context, probe func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		err := probe()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var namespaces atomic.Int32

// namespace makes a namespace for one test and waits until pods can be created there.
func (e *environment) namespace(t *testing.T, changes ...func(*corev1.Namespace)) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("test-%d", namespaces.Add(1))}}
	for _, change := range changes {
		change(ns)
	}
	e.create(t, ns)
	eventually(t, "service account default", func(g gomega.Gomega) {
		account := client.ObjectKey{Namespace: ns.Name, Name: "default"}
		g.Expect(e.Get(t.Context(), account, &corev1.ServiceAccount{})).To(gomega.Succeed())
	})
	return ns.Name
}

func (e *environment) create(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, e.Create(t.Context(), object))
}

var job = stage.NewTrainJob

func suspended(j *trainer.TrainJob) { j.Spec.Suspend = new(true) }

func (e *environment) get(t *testing.T, j *trainer.TrainJob) *trainer.TrainJob {
	t.Helper()
	got := &trainer.TrainJob{}
	check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(j), got))
	return got
}

// update changes an object in the cluster, again after a conflict, and returns the API server's answer.
func update[T client.Object](t *testing.T, e *environment, object T, change func(T)) error {
	t.Helper()
	var err error
	eventually(t, "update of "+object.GetName(), func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
		change(object)
		err = e.Update(t.Context(), object)
		g.Expect(apierrors.IsConflict(err)).To(gomega.BeFalse())
	})
	return err
}

// awaitJobSet waits until the TrainJob has a JobSet for which the condition is true.
func (e *environment) awaitJobSet(t *testing.T, j *trainer.TrainJob, condition func(*jobsetv1alpha2.JobSet) bool) *jobsetv1alpha2.JobSet {
	t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	eventually(t, "JobSet of "+j.Name, func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(j), js)).To(gomega.Succeed())
		g.Expect(condition(js)).To(gomega.BeTrue(), "JobSet: %+v", js.Status)
	})
	return js
}

// validator returns one more validator of TrainJobs, for checks that the API server cannot cause.
func (e *environment) validator(t *testing.T) *workerwebhooks.TrainJobValidator {
	t.Helper()
	return e.validatorWith(t, e.manager.GetClient())
}

func (e *environment) validatorWith(t *testing.T, c client.Client) *workerwebhooks.TrainJobValidator {
	t.Helper()
	return e.validatorOf(t, validation.Options{Client: c, Live: e.manager.GetAPIReader()})
}

func (e *environment) validatorOf(t *testing.T, opts validation.Options) *workerwebhooks.TrainJobValidator {
	t.Helper()
	opts.NewRuntimes = trainjob.NewRuntimes
	v, err := workerwebhooks.NewTrainJobValidator(t.Context(), opts, clock.RealClock{})
	check.Must(t, err)
	return v
}

// withWarnings returns a client of an admin and the warnings that the client gets.
func (e *environment) withWarnings(t *testing.T) (client.Client, *stage.Warnings) {
	t.Helper()
	c, got, err := e.server.WithWarnings()
	check.Must(t, err)
	return c, got
}

var eventually = check.Within(waitLimit, 20*time.Millisecond)

// patched returns a patch of the pods of one replicated job.
func patched(manager, step string, pod trainer.PodSpecPatch) trainer.RuntimePatch {
	return trainer.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
		Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
			Name:     step,
			Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &pod}}},
		}}}},
	}}
}

const inFirstStep = "trainingRuntimeSpec.template.spec.replicatedJobs[0]."

func patchedBy(patches ...trainer.RuntimePatch) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.RuntimePatches = patches }
}

// runtimeSpec returns a spec with one replicated job for a step.
func runtimeSpec(step string, replicas int32, containers ...string) trainer.TrainingRuntimeSpec {
	job := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: replicas}
	job.Template.Labels = map[string]string{constants.LabelTrainJobAncestor: step}
	for _, name := range containers {
		spec := &job.Template.Spec.Template.Spec
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, Image: "image"})
	}
	return trainer.TrainingRuntimeSpec{
		Template: trainer.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}}},
	}
}

// causes returns the field errors of an answer, one for each field.
func causes(t *testing.T, err error) (all []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		t.Fatalf("not an answer of a validation: %v", err)
	}
	for _, cause := range status.Status().Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	return all
}

// at returns a minute of the hour in which the tests write all statuses.
func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, time.May, 4, 10, minute, 0, 0, time.UTC))
}

func condition(kind string, status metav1.ConditionStatus, minute int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: kind + string(status), Message: "so it is", LastTransitionTime: at(minute)}
}

func conditions(all ...metav1.Condition) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{Conditions: all}
}

func report(minute int) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{TrainerStatus: &trainer.TrainerStatus{LastUpdatedTime: at(minute)}}
}

// handlers are the handlers of webhooks by path, as a webhook server has them.
type handlers struct {
	webhook.Server
	byPath map[string]http.Handler
}

// Register stores a handler.
func (h handlers) Register(path string, handler http.Handler) { h.byPath[path] = handler }

// refusals returns how many faults the metric counts for a webhook and a rule.
func refusals(t *testing.T, webhook, rule string) (count float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() != "trainyard_admission_refusals_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); labels[0].GetValue() == rule && labels[1].GetValue() == webhook {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}
