// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// mounting returns a pod whose one container mounts the volume named "mounted". Its other volumes are not mounted.
func mounting(sources ...corev1.VolumeSource) corev1.PodSpec {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "node", VolumeMounts: []corev1.VolumeMount{{Name: "mounted"}}}}}
	for i, source := range sources {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: []string{"mounted", "other"}[i], VolumeSource: source})
	}
	return pod
}

func container(c corev1.Container) corev1.PodSpec {
	c.Name = "node"
	return corev1.PodSpec{Containers: []corev1.Container{c}}
}

// TestNeeds: what a pod does without an object, by the kubelet and the scheduler of Kubernetes 1.36.
func TestNeeds(t *testing.T) {
	secretVolume := func(optional *bool, items ...corev1.KeyToPath) corev1.VolumeSource {
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: optional, Items: items}}
	}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "corpus"}}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: named("s"), Items: []corev1.KeyToPath{{Key: "a"}, {Key: "b"}}}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("c"), Optional: new(true)}},
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}}
	iscsi := func(chap bool) corev1.VolumeSource {
		secret := named("s")
		return corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &secret, SessionCHAPAuth: chap}}
	}
	cases := map[string]struct {
		reason string
		pod    corev1.PodSpec
		want   []Reference
	}{
		"Env": {
			reason: "A key in env must be there.",
			pod: container(corev1.Container{Env: []corev1.EnvVar{
				{Name: "PLAIN", Value: "x"},
				{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s"), Key: "k"}}},
				{Name: "MODE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: named("c"), Key: "k", Optional: new(true),
				}}},
			}}),
			want: []Reference{
				{Object: Object{Secret, "s"}, Key: "k", Field: "env TOKEN"},
				{Object: Object{ConfigMap, "c"}, Key: "k", Text: true, Field: "env MODE", Need: Optional},
			},
		},
		"EnvFrom": {
			reason: "A whole Secret in the environment must be there, unless it is optional.",
			pod: container(corev1.Container{EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s")}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("c"), Optional: new(true)}},
			}}),
			want: []Reference{
				{Object: Object{Secret, "s"}, Field: "envFrom"}, {Object: Object{ConfigMap, "c"}, Field: "envFrom", Need: Optional},
			},
		},
		"Volumes": {
			reason: "The kubelet asks for no Secret of a volume that no container mounts.",
			pod:    mounting(secretVolume(nil), secretVolume(nil, corev1.KeyToPath{Key: "k"})),
			want: []Reference{
				{Object: Object{Secret, "s"}, Field: "volume mounted"}, {Object: Object{Secret, "s"}, Key: "k", Field: "volume other", Need: Unused},
			},
		},
		"OptionalVolume": {
			reason: "An optional volume may be without its Secret and without a key.",
			pod:    mounting(secretVolume(new(true), corev1.KeyToPath{Key: "k"})),
			want:   []Reference{{Object: Object{Secret, "s"}, Key: "k", Field: "volume mounted", Need: Optional}},
		},
		"Claims": {
			reason: "The scheduler waits for a claim also where no container mounts it.",
			pod:    mounting(secretVolume(nil), claim),
			want: []Reference{
				{Object: Object{Secret, "s"}, Field: "volume mounted"}, {Object: Object{PersistentVolumeClaim, "corpus"}, Field: "volume other"},
			},
		},
		"Projected": {
			reason: "Each source of a projected volume counts alone.",
			pod:    mounting(projected),
			want: []Reference{
				{Object: Object{Secret, "s"}, Key: "a", Field: "volume mounted"}, {Object: Object{Secret, "s"}, Key: "b", Field: "volume mounted"},
				{Object: Object{ConfigMap, "c"}, Field: "volume mounted", Need: Optional},
			},
		},
		"ISCSI": {
			reason: "The kubelet reads the Secret of an iSCSI disk only for CHAP.",
			pod:    mounting(iscsi(true)),
			want:   []Reference{{Object: Object{Secret, "s"}, Field: "volume mounted"}},
		},
		"ISCSIWithoutCHAP": {
			reason: "The kubelet does not read it otherwise.",
			pod:    mounting(iscsi(false)),
			want:   []Reference{{Object: Object{Secret, "s"}, Field: "volume mounted", Need: Unused}},
		},
		"PullSecrets": {
			reason: "The kubelet pulls without a Secret that is missing.",
			pod:    corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{named("registry"), {}}},
			want:   []Reference{{Object: Object{Secret, "registry"}, Field: "imagePullSecrets", Need: ForImages}},
		},
		"SeveralContainers": {
			reason: "With several containers a field has the name of its container. A block device is mounted too.",
			pod: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "fetch", VolumeDevices: []corev1.VolumeDevice{{Name: "other"}}}},
				Containers: []corev1.Container{{Name: "node", EnvFrom: []corev1.EnvFromSource{
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s")}},
				}}},
				Volumes: []corev1.Volume{{Name: "other", VolumeSource: secretVolume(nil)}},
			},
			want: []Reference{
				{Object: Object{Secret, "s"}, Field: "envFrom of container node"}, {Object: Object{Secret, "s"}, Field: "volume other"},
			},
		},
	}
	for name, tc := range cases {
		for i := range tc.want {
			tc.want[i].Step = "node"
		}
		check.Diff(t, tc.want, OfPod("node", &tc.pod), name+": "+tc.reason)
	}
}

// TestOf: steps without pods need nothing, and what is made with the job is not missing.
func TestOf(t *testing.T) {
	step := func(name string, replicas, pods int32, claim string) jobsetv1alpha2.ReplicatedJob {
		job := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: replicas}
		job.Template.Spec.Parallelism = &pods
		job.Template.Spec.Template.Spec = mounting(
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}},
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("hostfile")}},
		)
		return job
	}
	jobSet := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm"}}
	jobSet.Spec.VolumeClaimPolicies = []jobsetv1alpha2.VolumeClaimPolicy{
		{Templates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "scratch"}}}},
	}
	jobSet.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{
		step("node", 1, 2, "corpus"), step("made", 1, 1, "scratch-llm"), step("none", 0, 1, "a"), step("zero", 1, 0, "b"),
	}
	got := Of(jobSet, Object{ConfigMap, "hostfile"})
	want := []Reference{{Object: Object{PersistentVolumeClaim, "corpus"}, Step: "node", Field: "volume mounted"}}
	check.Diff(t, want, got, "references of the JobSet")
}

// TestMissing: each thing is named once, by the first reference to it.
func TestMissing(t *testing.T) {
	reference := func(kind Kind, name, key, field string, need Need) Reference {
		return Reference{Object: Object{kind, name}, Key: key, Step: "node", Field: field, Need: need}
	}
	text := reference(ConfigMap, "c", "binary", "env B", Required)
	text.Text = true
	references := []Reference{
		reference(Secret, "gone", "a", "env A", Required), reference(Secret, "gone", "b", "env B", Required),
		reference(Secret, "there", "a", "env A", Required), reference(Secret, "there", "b", "env B", Required),
		reference(Secret, "there", "b", "env C", Required), reference(Secret, "there", "c", "env D", Optional),
		text, reference(ConfigMap, "c", "binary", "volume v", Required),
		reference(PersistentVolumeClaim, "leaving", "", "volume d", Required), reference(Secret, "leaving", "", "envFrom", Required),
		reference(PersistentVolumeClaim, "unread", "", "volume e", Required), reference(PriorityClass, "gold", "", "priorityClassName", Required),
		reference(Secret, "registry", "", "imagePullSecrets", ForImages),
	}
	states := map[Object]State{
		{Secret, "gone"}: {Absent: true}, {Secret, "there"}: {Keys: sets.New("a")}, {Secret, "registry"}: {Absent: true},
		{ConfigMap, "c"}: {Keys: sets.New("binary"), TextKeys: sets.New[string]()}, {Secret, "leaving"}: {Deleting: true},
		{PersistentVolumeClaim, "leaving"}: {Deleting: true}, {PriorityClass, "gold"}: {Absent: true},
	}
	want := `Secret "gone" is not in namespace "team-a", and env A of step node needs it; Secret "there" has no key "b", which env B of ` +
		`step node needs; ConfigMap "c" has no key "binary", which env B of step node needs; PersistentVolumeClaim "leaving" is being ` +
		`deleted from namespace "team-a", and volume d of step node needs it; PriorityClass "gold" is not there, and priorityClassName ` +
		`of step node needs it`
	check.Equal(t, want, Words(Missing(references, Required, states), "team-a"), "what is missing")
	want = `Secret "registry" is not in namespace "team-a", and imagePullSecrets of step node needs it`
	check.Equal(t, want, Words(Missing(references, ForImages, states), "team-a"), "what is missing to pull images")
	check.Equal(t, "", Words(nil, "team-a"), "nothing is missing")
}

// TestWordsAreBounded: users choose how many names there are, and how long names of variables are.
func TestWordsAreBounded(t *testing.T) {
	var references []Reference
	states := map[Object]State{}
	for i := range 1000 {
		object := Object{Secret, fmt.Sprintf("s%d", i)}
		references = append(references, Reference{Object: object, Step: "node", Field: "env " + strings.Repeat("é", 5000)})
		states[object] = State{Absent: true}
	}
	words := Words(Missing(references, Required, states), "team-a")
	if len(words) > 8<<10 || !strings.HasSuffix(words, "; and 992 more") || strings.ToValidUTF8(words, "?") != words {
		t.Errorf("%d bytes that end with %q", len(words), words[max(0, len(words)-40):])
	}
}
