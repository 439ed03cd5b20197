// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// A Secret with consent is on the worker before the copy, without the marks of the hub's tools. It is on record, stays
// while a job needs it, and goes with the last one.
func TestSecretComesAndGoes(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("hf", "one"))
	first, second := s.place(t, "first", "hf"), s.place(t, "second", "hf")
	check.Diff(t, []string(nil), s.bring(t, first), "what was left alone")
	s.expectToken(t, "hf", "one")
	onWorker := s.there(t, "hf")
	check.Diff(t, map[string]string{"team": "a", v1alpha1.LabelPropagatedBy: stage.HubID}, onWorker.Labels, "labels")
	check.Equal(t, 1, len(onWorker.Annotations), "annotations: only the source")
	check.Equal(t, "Secret/hf", s.recorded(t), "the record")

	before := s.sent.requests.Load()
	s.bring(t, second)
	s.reconcile(t)
	check.Equal(t, before, s.sent.requests.Load(), "requests for a second job")
	s.end(t, first)
	s.reconcile(t)
	s.expectToken(t, "hf", "one")
	s.end(t, second)
	s.reconcile(t)
	s.expectToken(t, "hf", "")
	check.Equal(t, "", s.recorded(t), "the record after the last job")
}

// What changes on the hub while a job runs changes on the worker, and a write that changes nothing is not sent.
func TestSecretIsKeptUpToDate(t *testing.T) {
	s := newScene(t)
	secret := s.secret("hf", "one")
	s.create(t, secret)
	s.bring(t, s.place(t, "job", "hf"))
	secret.Data = map[string][]byte{"token": []byte("two"), "more": []byte("x")}
	must(t, s.Hub.Admin.Update(t.Context(), secret))
	s.settleHub(t, secret)
	s.reconcile(t)
	s.expectToken(t, "hf", "two")
	version := s.there(t, "hf").ResourceVersion
	before := s.sent.requests.Load()
	s.reconcile(t)
	check.Equal(t, before, s.sent.requests.Load(), "requests when nothing has changed")
	s.restart()
	s.reconcile(t)
	check.Equal(t, version, s.there(t, "hf").ResourceVersion, "the version after a restart that has nothing to change")
}

// ConfigMaps and ServiceAccounts come too: of an account only the names of Secrets to pull images with.
func TestOtherKindsCome(t *testing.T) {
	s := newScene(t)
	meta := metav1.ObjectMeta{Namespace: s.Namespace, Name: "own", Labels: map[string]string{v1alpha1.LabelPropagate: "true"}}
	s.create(t, &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0, 255}}})
	s.create(t, &corev1.ServiceAccount{
		ObjectMeta: *meta.DeepCopy(), AutomountServiceAccountToken: ptr.To(false),
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}, Secrets: []corev1.ObjectReference{{Name: "token"}},
	})
	d := s.place(t, "job")
	d.Spec.Dependencies = []v1alpha1.Dependency{{Kind: "ConfigMap", Name: "own"}, {Kind: "ServiceAccount", Name: "own"}}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.settleDispatch(t, d)
	check.Diff(t, []string(nil), s.bring(t, d), "what was left alone")
	config, account := &corev1.ConfigMap{}, &corev1.ServiceAccount{}
	must(t, s.worker.Admin.Get(t.Context(), s.Key("own"), config))
	must(t, s.worker.Admin.Get(t.Context(), s.Key("own"), account))
	check.Diff(t, map[string][]byte{"c": {0, 255}}, config.BinaryData, "binary data")
	check.Diff(t, []corev1.LocalObjectReference{{Name: "pull"}}, account.ImagePullSecrets, "Secrets to pull images with")
	check.Equal(t, 0, len(account.Secrets), "tokens of the account")
	check.Equal(t, false, *account.AutomountServiceAccountToken, "automount")
}

// Without consent nothing of an object is read, and nothing comes to the worker. The same holds for Secrets of other
// namespaces, and for tokens of ServiceAccounts whatever their labels are.
func TestWithoutConsentNothingIsRead(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"NoLabel":    func(secret *corev1.Secret) { secret.Labels = nil },
		"OtherValue": func(secret *corev1.Secret) { secret.Labels[v1alpha1.LabelPropagate] = "yes" },
		"OtherNamespace": func(secret *corev1.Secret) {
			secret.Namespace = metav1.NamespaceDefault
			secret.Name = "of-another"
		},
		"Token": func(secret *corev1.Secret) {
			secret.Type = corev1.SecretTypeServiceAccountToken
			secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			secret := s.secret("hf", "one")
			change(secret)
			s.Hub.Create(t, secret)
			if name == "Token" { // The API server deletes the token of an account that is not there, and there is no controller.
				must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
			}
			s.create(t, s.secret("sign", "x")) // When the cache shows this one, it would show the other too.
			d := s.place(t, "job", secret.Name)
			check.Diff(t, []string(nil), s.bring(t, d), "what was left alone")
			s.reconcile(t)
			s.expectToken(t, secret.Name, "")
			check.Equal(t, "", s.recorded(t), "the record")
			check.Equal(t, 1, s.sent.requests.Load(), "requests beside the record's") // Reconcile loads the record.
		})
	}
}

// An object of the worker that is not ours is left alone, whether it is there before or takes the place of ours. The job
// is told its name.
func TestForeignObjectIsLeftAlone(t *testing.T) {
	for name, labels := range map[string]map[string]string{"Unlabelled": nil, "OfAnotherHub": {v1alpha1.LabelPropagatedBy: "hub-2"}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			foreign := s.secret("hf", "foreign")
			foreign.Labels, foreign.Annotations = labels, nil
			must(t, s.worker.Admin.Create(t.Context(), foreign))
			secret := s.secret("hf", "one")
			s.create(t, secret)
			d := s.place(t, "job", "hf")
			left := strings.Join(s.bring(t, d), "")
			if !strings.Contains(left, "Secret/hf is on the worker already") {
				t.Errorf("the job is told %q", left)
			}
			before := s.sent.requests.Load()
			s.bring(t, s.place(t, "next", "hf"))
			check.Equal(t, before, s.sent.requests.Load(), "requests for the next job")
			secret.Data["token"] = []byte("two")
			must(t, s.Hub.Admin.Update(t.Context(), secret))
			s.settleHub(t, secret)
			s.reconcile(t)
			s.end(t, d)
			s.end(t, s.Dispatch(t, "next"))
			s.reconcile(t)
			check.Equal(t, foreign.ResourceVersion, s.there(t, "hf").ResourceVersion, "the version of the foreign Secret")
			check.Equal(t, "", s.recorded(t), "the record")
		})
	}
	t.Run("TakesThePlace", func(t *testing.T) {
		s := newScene(t)
		s.create(t, s.secret("hf", "one"))
		d := s.place(t, "job", "hf")
		s.bring(t, d)
		must(t, s.worker.Admin.Delete(t.Context(), s.there(t, "hf")))
		foreign := s.secret("hf", "foreign")
		foreign.Labels = nil
		must(t, s.worker.Admin.Create(t.Context(), foreign))
		s.end(t, d)
		s.reconcile(t)
		s.expectToken(t, "hf", "foreign")
	})
}

// Objects come only into namespaces that this hub has made, or that an admin of the worker has labelled.
func TestNamespaceOfTheWorker(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"Foreign":      {want: ""},
		"OfAnotherHub": {labels: map[string]string{v1alpha1.LabelPropagatedBy: "hub-2"}},
		"Refused":      {labels: map[string]string{v1alpha1.LabelDependencies: "false"}},
		"Permitted":    {labels: map[string]string{v1alpha1.LabelDependencies: "true"}, want: "one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			namespace := &corev1.Namespace{}
			must(t, s.worker.Admin.Get(t.Context(), client.ObjectKey{Name: s.Namespace}, namespace))
			namespace.Labels = tc.labels
			must(t, s.worker.Admin.Update(t.Context(), namespace))
			s.settleNamespace(t, namespace)
			s.create(t, s.secret("hf", "one"))
			left := s.bring(t, s.place(t, "job", "hf"))
			s.reconcile(t)
			s.expectToken(t, "hf", tc.want)
			if told := len(left) == 1 && strings.Contains(left[0], v1alpha1.LabelDependencies+"=true"); told == (tc.want != "") {
				t.Errorf("the job is told %q", left)
			}
		})
	}
}

// An immutable Secret that is another one on the hub is replaced when no other job uses the earlier one. Until then the
// jobs that need the newer one are refused by name. No word of the contents is in the refusal.
func TestImmutableSecret(t *testing.T) {
	s := newScene(t)
	secret := s.secret("hf", "one")
	secret.Immutable = ptr.To(true)
	s.create(t, secret)
	user := s.place(t, "user", "hf")
	s.bring(t, user)
	must(t, s.Hub.Admin.Delete(t.Context(), secret))
	secret = s.secret("hf", "two-two")
	secret.Immutable = ptr.To(true)
	s.create(t, secret)
	s.reconcile(t)
	s.expectToken(t, "hf", "one")
	next := s.place(t, "next", "hf")
	_, err := s.reconciler.Bring(t.Context(), next)
	if !answers.Of(err).IsRefusal() || !strings.Contains(err.Error(), "Secret/hf is immutable") || strings.Contains(err.Error(), "two-two") {
		t.Errorf("the refusal is %v", err)
	}
	s.end(t, user)
	s.bring(t, next)
	s.expectToken(t, "hf", "two-two")
}

// What the worker answers to a Secret that it refuses is not repeated: the API server quotes it, and everybody who sees the
// job would read it.
func TestContentsAreNotRepeated(t *testing.T) {
	const contents = "confidential"
	for name, brought := range map[string]bool{"Created": false, "Changed": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			reader := &damaging{Reader: s.Hub.Admin}
			s.options.HubReader = reader
			s.restart()
			secret := s.secret("hf", "one")
			if brought { // It is replaced.
				s.create(t, secret)
				s.bring(t, s.place(t, "before", "hf"))
			}
			reader.contents = contents
			if brought {
				secret.Data["token"] = []byte(contents)
				must(t, s.Hub.Admin.Update(t.Context(), secret))
				s.settleHub(t, secret)
			} else {
				s.create(t, secret)
			}
			d := s.place(t, "job", "hf")
			_, err := s.reconciler.Bring(t.Context(), d)
			if err == nil || !answers.Of(err).IsRefusal() {
				t.Fatalf("the worker takes it: %v", err)
			}
			if words := fmt.Sprintf("%v %+v", err, err); strings.Contains(words, contents) || !strings.Contains(words, "Secret/hf") {
				t.Errorf("the words are %q", words)
			}
		})
	}
}

// A worker that was away while a job ended gets rid of what the job needed, by the record, also with a new manager. A
// cache that may lag behind an earlier leader deletes nothing.
func TestWorkerWasAway(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("hf", "one"))
	d := s.place(t, "job", "hf")
	s.bring(t, d)
	s.end(t, d)
	s.restart()
	namespaces, err := s.reconciler.Recorded(t.Context())
	must(t, err)
	check.Equal(t, true, namespaces.Has(s.Namespace), "the namespace is on record")
	if result := s.reconcile(t); result.RequeueAfter <= 0 {
		t.Error("it is not looked at again")
	}
	s.expectToken(t, "hf", "one")
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectToken(t, "hf", "")
	check.Equal(t, "", s.recorded(t), "the record")
}

// A copy that is not on record with its hub, adopted or in quarantine, keeps what it names and gets what changes, until it
// ends. It gets nothing that was not brought for a job.
func TestCopyWithoutDispatch(t *testing.T) {
	s := newScene(t)
	secret, other := s.secret("hf", "one"), s.secret("other", "x")
	s.create(t, secret)
	s.create(t, other)
	d := s.place(t, "job", "hf")
	s.bring(t, d)
	copy := s.copyOf(t, "job", "Secret/hf,Secret/other")
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "hf", "one")
	secret.Data["token"] = []byte("two")
	must(t, s.Hub.Admin.Update(t.Context(), secret))
	s.settleHub(t, secret)
	s.reconcile(t)
	s.expectToken(t, "hf", "two")
	s.expectToken(t, "other", "")
	must(t, s.worker.Admin.Delete(t.Context(), copy))
	s.worker.SettleCopy(t, s.Key("job"))
	s.reconcile(t)
	s.expectToken(t, "hf", "")
}

// Consent that is taken back, or a Secret that is deleted on the hub, changes nothing for the jobs that run: the worker
// keeps what it has, and loses it with the last job.
func TestConsentIsTakenBack(t *testing.T) {
	s := newScene(t)
	secret := s.secret("hf", "one")
	s.create(t, secret)
	d := s.place(t, "job", "hf")
	s.bring(t, d)
	secret.Labels, secret.Data["token"] = nil, []byte("two")
	must(t, s.Hub.Admin.Update(t.Context(), secret))
	s.settleHub(t, secret)
	s.reconcile(t)
	s.expectToken(t, "hf", "one")
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "hf", "")
}

// A job that comes while the Secret of the last one is being deleted has it again. A job that goes while its Secret is
// being written leaves nothing.
func TestJobsComeAndGo(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("hf", "one"))
	first := s.place(t, "first", "hf")
	s.bring(t, first)
	s.end(t, first)
	next := s.place(t, "next", "hf")
	s.reconcile(t)
	s.bring(t, next)
	s.expectToken(t, "hf", "one")

	late := s.place(t, "late", "late")
	s.create(t, s.secret("late", "x"))
	s.end(t, late)
	s.bring(t, late) // The mirror had begun.
	s.expectToken(t, "late", "x")
	s.reconcile(t)
	s.expectToken(t, "late", "")
	s.expectToken(t, "hf", "one")
}

// With three Secrets that 300 jobs share on two workers, a job costs at most a tenth of a request more: half of the jobs
// and all that the Secrets cost are on one worker here.
func TestRequestsOfManyJobs(t *testing.T) {
	const jobs, secrets = 150, 3
	s := newScene(t)
	var names []string
	for i := range secrets {
		names = append(names, fmt.Sprintf("secret-%d", i))
		s.create(t, s.secret(names[i], "x"))
	}
	var placed []*v1alpha1.Dispatch
	for i := range jobs {
		d := s.place(t, fmt.Sprintf("job-%d", i), names...)
		s.bring(t, d)
		if placed = append(placed, d); i >= 8 { // Eight run at a time.
			s.end(t, placed[i-8])
			s.reconcile(t)
		}
	}
	for _, d := range placed[jobs-8:] {
		s.end(t, d)
		s.reconcile(t)
	}
	for _, name := range names {
		s.expectToken(t, name, "")
	}
	if sent := s.sent.requests.Load(); sent > jobs/10 {
		t.Errorf("%d requests for %d jobs", sent, jobs)
	}
}

// A worker that does not grant the rights runs jobs that do not need them: the job is told, and another is not tried.
func TestWorkerForbids(t *testing.T) {
	s := newScene(t)
	s.options.Worker = forbidding{s.options.Worker}
	s.restart()
	s.create(t, s.secret("hf", "one"))
	left := s.bring(t, s.place(t, "job", "hf"))
	if len(left) != 1 || !strings.Contains(left[0], "config/worker-dependencies") {
		t.Errorf("the job is told %q", left)
	}
	before := s.sent.requests.Load()
	s.bring(t, s.place(t, "next", "hf"))
	check.Equal(t, before, s.sent.requests.Load(), "requests for the next job")
	if _, err := s.reconciler.Bring(t.Context(), s.place(t, "none")); apierrors.IsForbidden(err) {
		t.Error(err)
	}
}

// Nothing is written to a worker, and nothing deleted, while its policy is not in force: nobody else keeps the hub from
// objects that are not its own.
func TestPolicyIsMissing(t *testing.T) {
	s := newScene(t)
	s.create(t, s.secret("hf", "one"))
	s.bring(t, s.place(t, "before", "hf"))
	guarded := s.options.Worker
	s.options.Worker = unguarded{guarded}
	s.restart()
	s.Clock.Step(time.Minute)
	s.create(t, s.secret("other", "x"))
	left := s.bring(t, s.place(t, "job", "other"))
	if len(left) != 1 || !strings.Contains(left[0], "lacks the ValidatingAdmissionPolicy trainyard-dependencies") {
		t.Errorf("the job is told %q", left)
	}
	s.expectToken(t, "other", "")
	s.end(t, s.Dispatch(t, "before"))
	if _, err := s.reconciler.Reconcile(t.Context(), s.request()); err == nil {
		t.Error("the deletion has not failed")
	}
	s.expectToken(t, "hf", "one")
	s.options.Worker = guarded
	s.restart()
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectToken(t, "hf", "")
}
