// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	webhookService = "trainyard-worker-agent-webhook"
	webhookSecret  = webhookService + "-cert"
	badJob         = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"bad"},` +
		`"spec":{"runtimeRef":{"name":"torch-distribute"}}}`
)

// TestWebhooksWithGivenFiles checks that with --webhook-cert-dir the agent answers webhooks, reloads files, and does
// not block its own controller.
func TestWebhooksWithGivenFiles(t *testing.T) {
	setUp(t)
	server := newWebhookServer(t, "given")
	a := startAgent(t, "--webhook-bind-address="+address(server), "--webhook-cert-dir="+server.CertDir)
	applyWebhooks(t, func(objects []*unstructured.Unstructured) error { return clusters.WebhookURLs(server, objects...) })
	awaitRefusal(t)

	j := createJob(t, "admitted", func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) })
	eventually(t, "job to be suspended", func(g gomega.Gomega) { g.Expect(conditionsOf(g, t, j)).To(gomega.Equal("Suspended=True")) })
	if _, err := world.cluster.Kubectl(t.Context(), "patch", "trainjob", j.Name, "--type=merge", "-p", `{"spec":{"suspend":false}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "job to complete", func(g gomega.Gomega) {
		g.Expect(conditionsOf(g, t, j)).To(gomega.Equal("Suspended=False Complete=True"))
	})
	late := createJob(t, "too-long", func(j *trainer.TrainJob) {
		j.Spec.ActiveDeadlineSeconds = 1
		j.Spec.RuntimePatches = []trainer.RuntimePatch{runForever()}
	})
	if late.Spec.RuntimePatches[0].Time == nil {
		t.Error("the patch has not got a time")
	}
	eventually(t, "deadline", func(g gomega.Gomega) { g.Expect(conditionsOf(g, t, late)).To(gomega.Equal("Failed=True")) })
	if body, err := fetch(a.metrics, "/metrics"); err != nil || strings.Contains(body, `refusals_total{rule="EndIsFinal"`) {
		t.Errorf("the agent has refused a status of its own (error %v):\n%s", err, grep(body, "refusals_total"))
	}

	out, err := world.cluster.Kubectl(t.Context(), "patch", "trainjob", j.Name, "--subresource=status", "--type=merge",
		"-p", `{"status":{"conditions":[]}}`)
	want := `status.conditions[Complete]: Required value: rule EndIsFinal: was "True"; ` +
		`the end of a TrainJob and its reason cannot change: write the condition as it was`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the end of a job was taken away: got %q, error %v", out, err)
	}
	body, err := fetch(a.metrics, "/metrics")
	for _, line := range []string{
		`trainyard_admission_refusals_total{rule="EndIsFinal",webhook="trainjob-status"} 1`,
		`controller_runtime_webhook_latency_seconds_count{webhook="/validate-trainer-kubeflow-org-v1alpha1-trainjob"}`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics lacks %q, error %v", line, err)
		}
	}

	renewed := newWebhookServer(t, "renewed")
	copyFiles(t, renewed.CertDir, server.CertDir)
	eventually(t, "the new certificate to be served", func(g gomega.Gomega) {
		g.Expect(handshake(t.Context(), address(server), server.Host, renewed.CABundle)).To(gomega.Succeed())
	})
	renewed.Port = server.Port
	applyWebhooks(t, func(objects []*unstructured.Unstructured) error { return clusters.WebhookURLs(renewed, objects...) })
	awaitRefusal(t)
	a.checkRights(t)
}

// TestWebhooksMakeTheirCertificates checks that with --webhook-service the agents make certificates, that all replicas
// serve the same certificate, and that deleted certificates are made again.
func TestWebhooksMakeTheirCertificates(t *testing.T) {
	setUp(t)
	servers := []*clusters.WebhookServer{newWebhookServer(t, "first"), newWebhookServer(t, "second")}
	applyWebhooks(t, func(objects []*unstructured.Unstructured) error {
		return clusters.WebhookServices(servers[0], objects...)
	})
	var all []*agent
	for _, server := range servers {
		all = append(all, startAgent(t, "--webhook-bind-address="+address(server), "--webhook-service="+agentNamespace+"/"+webhookService))
	}
	awaitRefusal(t)

	name := webhookService + "." + agentNamespace + ".svc"
	first := authority(t)
	for _, server := range servers {
		eventually(t, "certificate on "+address(server), func(g gomega.Gomega) {
			g.Expect(handshake(t.Context(), address(server), name, first)).To(gomega.Succeed())
		})
	}

	_, err := world.cluster.Kubectl(t.Context(), "patch", "secret", "-n", agentNamespace, webhookSecret, "--type=merge", "-p", `{"data":null}`)
	check.Must(t, err)
	for _, server := range servers {
		eventually(t, "new certificate on "+address(server), func(g gomega.Gomega) {
			second := authority(t)
			g.Expect(second).NotTo(gomega.Equal(first))
			g.Expect(handshake(t.Context(), address(server), name, second)).To(gomega.Succeed())
		})
	}
	awaitRefusal(t)
	for _, a := range all {
		a.checkRights(t)
	}
}

// TestWebhooksWithoutAgents checks that without agents nobody can create or change jobs and runtimes, because nobody
// validates them. Everything else works: objects can be deleted, and status can be written.
func TestWebhooksWithoutAgents(t *testing.T) {
	setUp(t)
	a := startAgent(t, serveWebhooks(t, "absent")...)
	awaitRefusal(t)
	const (
		jobSpec     = `{"managedBy":"kueue.x-k8s.io/multikueue","runtimeRef":{"name":"torch-distributed"}}`
		runtimeSpec = `{"template":{"spec":{"replicatedJobs":[]}}}`
		held        = `"finalizers":["test.io/hold"]`
		unchecked   = `"labels":{"trainer.kubeflow.org/webhook-validation":"disabled"}`
	)
	apply := func(kind, name, metadata, spec string) error {
		return world.cluster.Apply(t.Context(), fmt.Sprintf(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":%q,`+
			`"metadata":{"namespace":"default","name":%q,%s},"spec":%s}`, kind, name, metadata, spec))
	}
	check.Must(t, errors.Join(apply("TrainJob", "orphan", held, jobSpec), apply("TrainingRuntime", "orphan", held, runtimeSpec)))
	check.Must(t, a.Stop())

	cases := []struct {
		reason  string
		refused bool
		args    []string
	}{
		{"a changed spec", true, []string{"patch", "trainjob/orphan", "--type=merge", "-p", `{"spec":{"suspend":true}}`}},
		{"a changed TTL", true, []string{"annotate", "trainjob/orphan", "trainyard.dev/ttl-seconds-after-finished=60"}},
		{"other metadata", false, []string{"annotate", "trainjob/orphan", "a.io/b=c"}},
		{"a status", false, []string{"patch", "trainjob/orphan", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[` +
			`{"type":"Complete","status":"True","reason":"R","message":"","lastTransitionTime":"2026-05-04T10:00:00Z"}]}}`}},
		{"a changed runtime", true, []string{"patch", "trainingruntime/orphan", "--type=merge", "-p", `{"spec":{"mlPolicy":{"numNodes":2}}}`}},
		{"a runtime's metadata", false, []string{"label", "trainingruntime/orphan", "a.io/b=c"}},
		{"deletion", false, []string{"delete", "trainjob/orphan", "trainingruntime/orphan", "--wait=false"}},
		{"a spec of what goes", false, []string{"patch", "trainjob/orphan", "--type=merge", "-p", `{"spec":{"suspend":true}}`}},
		{"a finalizer", false, []string{"patch", "trainjob/orphan", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}},
		{"a runtime's finalizer", false, []string{"patch", "trainingruntime/orphan", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}},
	}
	for _, tc := range cases {
		_, err := world.cluster.Kubectl(t.Context(), tc.args...)
		if refused := err != nil; refused != tc.refused {
			t.Errorf("%s: refused is %v, want %v (error %v)", tc.reason, refused, tc.refused, err)
		} else if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s: refused by somebody else: %v", tc.reason, err)
		}
	}
	if err := apply("TrainJob", "new", held, jobSpec); err == nil {
		t.Error("a new job was accepted")
	}
	if err := apply("TrainingRuntime", "new", held, runtimeSpec); err == nil {
		t.Error("a new runtime was accepted")
	}
	check.Equal(t, nil, apply("TrainingRuntime", "unchecked", unchecked, runtimeSpec),
		"a runtime that is not to be validated")
}

// TestMissingSecretIsNamed checks that an agent without the Secret of config/webhook ends and says so.
func TestMissingSecretIsNamed(t *testing.T) {
	setUp(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: webhookSecret}}
	check.Must(t, client.IgnoreNotFound(world.client.Delete(t.Context(), secret)))
	out, err := exec.CommandContext(t.Context(), world.binary, "--kubeconfig="+world.kubeconfig, "--leader-elect=false",
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address="+freeAddress(t),
		"--webhook-service="+agentNamespace+"/"+webhookService).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `Secret "`+webhookSecret+`" not found`) {
		t.Errorf("without the Secret: error %v, want one that names it:\n%s", err, out)
	}
}

// TestBadCertificateDirectory checks that an agent with a wrong directory ends at once with an error.
func TestBadCertificateDirectory(t *testing.T) {
	setUp(t)
	out, err := exec.CommandContext(t.Context(), world.binary, "--kubeconfig="+world.kubeconfig,
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-cert-dir=/no/such/directory").CombinedOutput()
	want := "worker-agent: load certificate in --webhook-cert-dir: open /no/such/directory/tls.crt: no such file or directory"
	if got := strings.TrimSpace(string(out)); err == nil || got != want {
		t.Errorf("got error %v and\n%s\nwant\n%s", err, got, want)
	}
}

// serveWebhooks applies config/webhook for an agent, and returns the flags for that agent.
func serveWebhooks(t *testing.T, name string) []string {
	t.Helper()
	server := newWebhookServer(t, name)
	applyWebhooks(t, func(objects []*unstructured.Unstructured) error { return clusters.WebhookURLs(server, objects...) })
	return []string{"--webhook-bind-address=" + address(server), "--webhook-cert-dir=" + server.CertDir}
}

func newWebhookServer(t *testing.T, name string) *clusters.WebhookServer {
	t.Helper()
	server, err := world.cluster.NewWebhookServer(name)
	check.Must(t, err)
	return server
}

func address(server *clusters.WebhookServer) string {
	return net.JoinHostPort(server.Host, strconv.Itoa(server.Port))
}

// applyWebhooks applies config/webhook after a change. It removes the configurations after the test.
func applyWebhooks(t *testing.T, change func([]*unstructured.Unstructured) error) {
	t.Helper()
	objects, err := clusters.ReadObjects("../../config/webhook")
	check.Must(t, err)
	check.Must(t, change(objects))
	t.Cleanup(func() {
		_, err := world.cluster.Kubectl(context.Background(), "delete", "--ignore-not-found",
			"mutatingwebhookconfiguration/"+webhookConfiguration, "validatingwebhookconfiguration/"+webhookConfiguration)
		check.Must(t, err)
	})
	check.Must(t, world.cluster.ApplyObjects(t.Context(), objects...))
}

// awaitRefusal waits until the API server asks the agent and gets an answer with a reason.
func awaitRefusal(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad.json")
	check.Must(t, os.WriteFile(path, []byte(badJob), 0o600))
	eventually(t, "a bad job to be refused", func(g gomega.Gomega) {
		_, err := world.cluster.Kubectl(t.Context(), "create", "--dry-run=server", "-f", path)
		g.Expect(err).To(gomega.MatchError(gomega.And(
			gomega.ContainSubstring("spec.runtimeRef"), gomega.ContainSubstring(`"torch-distributed"`))))
	})
}

// handshake returns nil if the server has a certificate for the name from the authority.
func handshake(ctx context.Context, address, name string, ca []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// authority returns the authority that the API server trusts for the webhooks. All webhooks have the same one.
func authority(t *testing.T) []byte {
	t.Helper()
	key := types.NamespacedName{Name: webhookConfiguration}
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	check.Must(t, world.client.Get(t.Context(), key, mutating))
	check.Must(t, world.client.Get(t.Context(), key, validating))
	ca := mutating.Webhooks[0].ClientConfig.CABundle
	for _, webhook := range validating.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, ca) {
			return nil // It is being written.
		}
	}
	return ca
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{webhookserver.KeyFile, webhookserver.CertFile} {
		data, err := os.ReadFile(filepath.Join(from, name))
		check.Must(t, err)
		check.Must(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
	}
}

// conditionsOf returns a short text of a TrainJob's conditions.
func conditionsOf(g gomega.Gomega, t *testing.T, j *trainer.TrainJob) string {
	g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
	var all []string
	for _, c := range j.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	return strings.Join(all, " ")
}

// runForever patches the trainer's pods so that the simulated nodes run them for ever.
func runForever() trainer.RuntimePatch {
	pod := &trainer.PodTemplatePatch{
		Metadata: &metav1.ObjectMeta{Annotations: map[string]string{clusters.RunForAnnotation: clusters.RunForever}},
	}
	job := &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}}
	spec := &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{Name: "node", Template: job}}}
	return trainer.RuntimePatch{
		Manager:             "trainyard.dev/test",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: spec}},
	}
}

// grep returns the lines of a text that contain a word.
func grep(text, word string) string {
	var found []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, word) && !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}
