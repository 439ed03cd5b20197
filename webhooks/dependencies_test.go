// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// doNotTell is in the data of the Secrets of these tests.
const doNotTell = "do-not-tell"

var asCopy = with(copyLabels, nil)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func envFromSecret(variable, secret, key string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(secret), Key: key, Optional: &optional},
	}}
}

// mount gives the container of a pod a volume.
func mount(pod *corev1.PodSpec, name string, source corev1.VolumeSource) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	node := &pod.Containers[0]
	node.VolumeMounts = append(node.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
}

func claimVolume(claim string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
}

func secretOf(namespace, name string, keys ...string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{}}
	for _, key := range keys {
		secret.StringData[key] = doNotTell
	}
	return secret
}

func configOf(namespace, name string, keys ...string) *corev1.ConfigMap {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{}}
	for _, key := range keys {
		config.Data[key] = "value"
	}
	return config
}

func claimOf(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
}

// claimed has the pods claim a device, by the name of a claim or of a template.
func claimed(claim, template *string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: claim, ResourceClaimTemplateName: template}}
	}
}

// TestCopyWithoutWhatItsPodsName: a copy is refused before a pod is made, in words that name what is missing and what
// names it. It is accepted when it is there.
func TestCopyWithoutWhatItsPodsName(t *testing.T) {
	e := env(t)
	device := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}},
	}}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: named("tls"), Items: []corev1.KeyToPath{{Key: "ca", Path: "ca"}}}},
	}}}
	cases := map[string]struct {
		pod  func(*corev1.PodSpec)
		job  func(*trainer.TrainJob)
		has  func(namespace string) client.Object // before
		then func(namespace string) client.Object // what is missing, or has the key that is missing
		want string                               // %q is the namespace
	}{
		"Secret": {
			job: func(j *trainer.TrainJob) {
				j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("HF_TOKEN", "hf-token", "token", false)}
			},
			then: func(ns string) client.Object { return secretOf(ns, "hf-token", "token") },
			want: `Secret "hf-token" is not in namespace %q, and env HF_TOKEN of step node needs it`,
		},
		"Key": {
			job: func(j *trainer.TrainJob) {
				j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("HF_TOKEN", "hf-token", "token", false)}
			},
			has:  func(ns string) client.Object { return secretOf(ns, "hf-token", "other") },
			then: func(ns string) client.Object { return secretOf(ns, "hf-token", "token") },
			want: `Secret "hf-token" has no key "token", which env HF_TOKEN of step node needs`,
		},
		"ConfigMap": {
			pod: func(pod *corev1.PodSpec) {
				config := corev1.ConfigMapEnvSource{LocalObjectReference: named("settings")}
				pod.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &config}}
			},
			then: func(ns string) client.Object { return configOf(ns, "settings") },
			want: `ConfigMap "settings" is not in namespace %q, and envFrom of step node needs it`,
		},
		"KeyOfConfigMap": {
			pod: func(pod *corev1.PodSpec) {
				mount(pod, "settings", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: named("settings"), Items: []corev1.KeyToPath{{Key: "train.yaml", Path: "train.yaml"}},
				}})
			},
			has:  func(ns string) client.Object { return configOf(ns, "settings", "other.yaml") },
			then: func(ns string) client.Object { return configOf(ns, "settings", "train.yaml") },
			want: `ConfigMap "settings" has no key "train.yaml", which volume settings of step node needs`,
		},
		"Projected": {
			pod:  func(pod *corev1.PodSpec) { mount(pod, "tls", projected) },
			then: func(ns string) client.Object { return secretOf(ns, "tls", "ca") },
			want: `Secret "tls" is not in namespace %q, and volume tls of step node needs it`,
		},
		"PersistentVolumeClaim": {
			pod:  func(pod *corev1.PodSpec) { mount(pod, "data", claimVolume("corpus")) },
			then: func(ns string) client.Object { return claimOf(ns, "corpus") },
			want: `PersistentVolumeClaim "corpus" is not in namespace %q, and volume data of step node needs it`,
		},
		"ResourceClaimTemplate": {
			pod: claimed(nil, new("h100")),
			then: func(ns string) client.Object {
				return &resourceapi.ResourceClaimTemplate{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "h100"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: device},
				}
			},
			want: `ResourceClaimTemplate "h100" is not in namespace %q, and resource claim gpu of step node needs it`,
		},
		"ResourceClaim": {
			pod: claimed(new("h100"), nil),
			then: func(ns string) client.Object {
				return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "h100"}, Spec: device}
			},
			want: `ResourceClaim "h100" is not in namespace %q, and resource claim gpu of step node needs it`,
		},
		"Initializer": {
			job: func(j *trainer.TrainJob) {
				secret := named("bucket")
				j.Spec.RuntimeRef = trainer.RuntimeRef{Name: "torchtune-llama3.2-1b"}
				j.Spec.Initializer = &trainer.Initializer{
					Model: &trainer.ModelInitializer{StorageUri: new("s3://models/llama"), SecretRef: &secret},
				}
			},
			then: func(ns string) client.Object { return secretOf(ns, "bucket") },
			want: `Secret "bucket" is not in namespace %q, and envFrom of step model-initializer needs it`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns := e.namespace(t)
			changes := []func(*trainer.TrainJob){asCopy}
			if tc.pod != nil {
				changes = append(changes, e.namespacedRuntime(t, ns, "own", func(spec *trainer.TrainingRuntimeSpec) { tc.pod(podOfNode(spec)) }))
			}
			if tc.job != nil {
				changes = append(changes, tc.job)
			}
			if tc.has != nil {
				e.create(t, tc.has(ns))
			}
			err := e.Create(t.Context(), job(ns, "copy", changes...), client.DryRunAll)
			want := strings.ReplaceAll(tc.want, "%q", fmt.Sprintf("%q", ns))
			check.Diff(t, []string{"metadata.namespace: Forbidden: " + want}, causes(t, err), "the answer for a copy")
			if strings.Contains(err.Error(), doNotTell) {
				t.Errorf("the answer has the contents of a Secret: %v", err)
			}
			if tc.has != nil {
				check.Must(t, e.Delete(t.Context(), tc.has(ns)))
			}
			e.create(t, tc.then(ns))
			check.Equal(t, nil, e.Create(t.Context(), job(ns, "copy", changes...), client.DryRunAll), "the answer when it is there")
		})
	}
}

// TestAllThatIsMissingIsInOneSentence: whoever has to create the objects learns of all of them at once, also of a service
// account, which the dry run of a pod finds.
func TestAllThatIsMissingIsInOneSentence(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	runtime := e.namespacedRuntime(t, ns, "own", func(spec *trainer.TrainingRuntimeSpec) {
		mount(podOfNode(spec), "data", claimVolume("corpus"))
		podOfNode(spec).ServiceAccountName = "robot"
	})
	err := e.Create(t.Context(), job(ns, "copy", asCopy, runtime, func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("A", "s", "a", false), envFromSecret("B", "s", "b", false)}
	}), client.DryRunAll)
	wantFaults(t, err, fmt.Sprintf(`metadata.namespace: Forbidden: Secret "s" is not in namespace %q, and env A of step node needs it; `+
		`PersistentVolumeClaim "corpus" is not in namespace %q, and volume data of step node needs it`, ns, ns),
		`spec.runtimeRef.name: Invalid value: pods of replicated job "node" are refused: error looking up service account`)
}

// TestCopyRunsWithout: pods run without what is optional, what no container mounts and what only helps to pull images. And
// what is made with the job is not missing.
func TestCopyRunsWithout(t *testing.T) {
	e := env(t)
	unmounted := func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "unread", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "missing"},
		}})
	}
	cases := map[string]func(*trainer.TrainingRuntimeSpec){
		"Optional": func(spec *trainer.TrainingRuntimeSpec) {
			mount(podOfNode(spec), "maybe", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing", Optional: new(true)}})
		},
		"Unmounted": func(spec *trainer.TrainingRuntimeSpec) { unmounted(podOfNode(spec)) },
		"PullSecret": func(spec *trainer.TrainingRuntimeSpec) {
			podOfNode(spec).ImagePullSecrets = []corev1.LocalObjectReference{named("missing")}
		},
		"Made": func(spec *trainer.TrainingRuntimeSpec) {
			spec.Template.Spec.VolumeClaimPolicies = []jobsetv1alpha2.VolumeClaimPolicy{
				{Templates: []corev1.PersistentVolumeClaim{*claimOf("", "scratch")}},
			}
			mount(podOfNode(spec), "again", claimVolume("scratch-copy"))
			node := &podOfNode(spec).Containers[0]
			node.VolumeMounts = append(node.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			ns := e.namespace(t)
			err := e.Create(t.Context(), job(ns, "copy", asCopy, e.namespacedRuntime(t, ns, "own", change)), client.DryRunAll)
			check.Equal(t, nil, err, "a copy whose pods run is refused")
		})
	}
	t.Run("MPI", func(t *testing.T) { // The framework makes a hostfile and keys.
		deepspeed := func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = "deepspeed-distributed" }
		check.Equal(t, nil, e.Create(t.Context(), job(e.namespace(t), "copy", asCopy, deepspeed), client.DryRunAll), "an MPI job is refused")
	})
	t.Run("OptionalKey", func(t *testing.T) {
		ns := e.namespace(t)
		e.create(t, secretOf(ns, "s", "other"))
		err := e.Create(t.Context(), job(ns, "copy", asCopy, func(j *trainer.TrainJob) {
			j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("A", "s", "a", true)}
		}), client.DryRunAll)
		check.Equal(t, nil, err, "a copy that can do without a key is refused")
	})
}

// TestUsersAreWarned: whoever creates a TrainJob on the worker itself may create the Secret next.
func TestUsersAreWarned(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	runtime := e.namespacedRuntime(t, ns, "own", func(spec *trainer.TrainingRuntimeSpec) {
		podOfNode(spec).ImagePullSecrets = []corev1.LocalObjectReference{named("registry")}
	})
	c, got := e.withWarnings(t)
	check.Must(t, c.Create(t.Context(), job(ns, "own", runtime, func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("HF_TOKEN", "hf-token", "token", false)}
	}), client.DryRunAll))
	check.Diff(t, []string{
		fmt.Sprintf(`Secret "hf-token" is not in namespace %q, and env HF_TOKEN of step node needs it: the pods wait until it is there`, ns),
		fmt.Sprintf(`Secret "registry" is not in namespace %q, and imagePullSecrets of step node needs it: images that are not public `+
			`cannot be pulled without it`, ns),
	}, got.All(), "warnings")
}

// TestQuestionsLookForNothing: an answer about pods holds for jobs that differ in their environment.
func TestQuestionsLookForNothing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	pods := e.ask(t, question(ns, asCopy, func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("HF_TOKEN", "hf-token", "token", false)}
	}))
	check.Equal(t, 1, len(pods), "the question is answered")
}

// reads counts what is read.
type reads struct {
	client.Reader
	mu  sync.Mutex
	all []string
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	r.mu.Lock()
	r.all = append(r.all, strings.TrimSpace(fmt.Sprintf("%T %s", object, kind)))
	r.mu.Unlock()
	return r.Reader.Get(ctx, key, object, opts...)
}

// TestReads: a job that names nothing costs no read. The contents of a Secret are read only for its keys, and each object
// is read once.
func TestReads(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.create(t, secretOf(ns, "whole"))
	e.create(t, secretOf(ns, "keyed", "a", "b"))
	kind := func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.APIGroup, j.Spec.RuntimeRef.Kind = &trainer.GroupVersion.Group, new(trainer.ClusterTrainingRuntimeKind)
	}
	count := func(changes ...func(*trainer.TrainJob)) []string {
		live := &reads{Reader: e.manager.GetAPIReader()}
		v := e.validatorOf(t, validation.Options{Client: e.manager.GetClient(), Live: live})
		_, err := v.ValidateCreate(t.Context(), job(ns, "copy", append(changes, asCopy, kind)...))
		check.Must(t, err)
		return live.all
	}
	others := []string{"*v1alpha1.ClusterTrainingRuntime", "*v1.Service"}
	check.Diff(t, others, count(), "reads for a job that names nothing")
	check.Diff(t, []string{others[0], "*v1.Secret", others[1]}, count(func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("A", "keyed", "a", false), envFromSecret("B", "keyed", "b", false)}
	}), "reads for two keys of a Secret")
	check.Diff(t, []string{others[0], "*v1.PartialObjectMetadata Secret", others[1]}, count(func(j *trainer.TrainJob) {
		secret := named("whole")
		j.Spec.RuntimeRef.Name = "torchtune-llama3.2-1b"
		j.Spec.Initializer = &trainer.Initializer{Model: &trainer.ModelInitializer{StorageUri: new("s3://m/l"), SecretRef: &secret}}
	}), "reads for a whole Secret")
}

// TestRightsToLookAreMissing: an agent with the rights of an older release looks for less, and refuses nothing for that.
func TestRightsToLookAreMissing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	config := rest.CopyConfig(e.cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	nobody, err := client.New(config, client.Options{Scheme: e.manager.GetScheme(), Mapper: e.RESTMapper()})
	check.Must(t, err)
	v := e.validatorOf(t, validation.Options{Client: e.manager.GetClient(), Live: onlyRuntimes{Reader: e.manager.GetAPIReader(), others: nobody}})
	warnings, err := v.ValidateCreate(t.Context(), job(ns, "copy", asCopy, func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.APIGroup, j.Spec.RuntimeRef.Kind = &trainer.GroupVersion.Group, new(trainer.ClusterTrainingRuntimeKind)
		j.Spec.Trainer.Env = []corev1.EnvVar{envFromSecret("HF_TOKEN", "hf-token", "token", false)}
	}))
	check.Equal(t, nil, err, "refused because the agent lacks rights")
	want := `cannot check whether it is there: get Secret "hf-token": secrets "hf-token" is forbidden: User "nobody" cannot get `
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], want) {
		t.Errorf("warnings %q", warnings)
	}
}

// onlyRuntimes reads all but runtimes with the rights of somebody else.
type onlyRuntimes struct {
	client.Reader
	others client.Reader
}

func (o onlyRuntimes) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, is := object.(*trainer.ClusterTrainingRuntime); is {
		return o.Reader.Get(ctx, key, object, opts...)
	}
	return o.others.Get(ctx, key, object, opts...)
}
