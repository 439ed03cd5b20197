// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Names of the variables that tell the process of an attempt about the attempts before it.
const (
	// EnvJobUID is the UID of the hub TrainJob, which all attempts share.
	EnvJobUID = "TRAINYARD_JOB_UID"
	// EnvAttempt is the number of the attempt. A later attempt has a higher number.
	EnvAttempt = "TRAINYARD_ATTEMPT"
	// EnvCluster is the name of the WorkerCluster on which the attempt runs.
	EnvCluster = "TRAINYARD_CLUSTER"
	// EnvPreviousCluster is v1alpha1.Checkpoint's previousCluster.
	EnvPreviousCluster = "TRAINYARD_PREVIOUS_CLUSTER"
	// EnvCheckpointURI is v1alpha1.Checkpoint's uri.
	EnvCheckpointURI = "TRAINYARD_CHECKPOINT_URI"
	// EnvLastProgress is v1alpha1.Checkpoint's lastProgress.
	EnvLastProgress = "TRAINYARD_LAST_PROGRESS"
)

// CheckpointManager is the key of the entry in a copy's spec.runtimePatches that gives pods the grace period of their
// policy.
const CheckpointManager = v1alpha1.KeyPrefix + "checkpoint"

const (
	// MaxEnv is how many variables the API takes in spec.trainer.env.
	MaxEnv = 128
	// CheckpointVariables is how many variables AddCheckpointEnv adds at most.
	CheckpointVariables = 6
	// maxURI is how long the URI of a checkpoint may be, in bytes.
	maxURI = 1024
)

// CheckpointURI returns the value of v1alpha1.AnnotationCheckpoint with the UID and the namespace of the TrainJob in it.
// Its error says which values are valid, without the names of annotation and value.
func CheckpointURI(value string, uid types.UID, namespace string) (string, error) {
	if claim, is := strings.CutPrefix(value, v1alpha1.CheckpointPVC); is {
		if messages := validation.IsDNS1123Subdomain(claim); len(messages) > 0 {
			return "", fmt.Errorf("after %q comes the name of a PersistentVolumeClaim: %s", v1alpha1.CheckpointPVC, messages[0])
		}
		return value, nil
	}
	uri := strings.NewReplacer("$(UID)", string(uid), "$(NAMESPACE)", namespace).Replace(value)
	parsed, err := url.Parse(uri)
	switch {
	case strings.Contains(uri, "$("):
		return "", errors.New("only $(UID) and $(NAMESPACE) are expanded")
	case len(uri) > maxURI:
		return "", fmt.Errorf("must have at most %d bytes when it is expanded", maxURI)
	case strings.ContainsFunc(uri, isBlank):
		return "", errBlank
	case err != nil, parsed.Scheme == "", parsed.Opaque != "", parsed.Host == "" && parsed.Path == "":
		return "", fmt.Errorf("must be a URI such as s3://bucket/checkpoints/$(UID), or %s and the name of a PersistentVolumeClaim",
			v1alpha1.CheckpointPVC)
	case hasPassword(parsed):
		return "", errPassword
	}
	return uri, nil
}

// What no URI of a job may have.
var (
	errBlank    = errors.New("must have no white space and no control characters")
	errPassword = errors.New("must have no password: everybody who may read the TrainJob or its pods reads it; use a Secret")
)

func isBlank(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
}

func hasPassword(uri *url.URL) bool {
	_, has := uri.User.Password()
	return has
}

// CheckpointClaim returns the name of the PersistentVolumeClaim that the URI of a checkpoint names, empty if it names
// none.
func CheckpointClaim(uri string) string {
	if claim, is := strings.CutPrefix(uri, v1alpha1.CheckpointPVC); is {
		return claim
	}
	return ""
}

// variable is a variable of the environment.
type variable struct{ name, value string }

// checkpointVariables are the variables that the copy of a Dispatch gets, the most important one first.
func checkpointVariables(spec *v1alpha1.DispatchSpec) []variable {
	all := []variable{
		{EnvJobUID, string(spec.TrainJob.UID)}, {EnvAttempt, strconv.Itoa(int(spec.Attempt))}, {EnvCheckpointURI, spec.Checkpoint.URI},
		{EnvPreviousCluster, string(spec.Checkpoint.PreviousCluster)}, {EnvLastProgress, spec.Checkpoint.LastProgress},
		{EnvCluster, string(spec.Cluster)},
	}
	return slices.DeleteFunc(all, func(v variable) bool { return v.value == "" })
}

// AddCheckpointEnv adds to the spec of a copy what its Dispatch says about checkpoints. Variables that are there stay as
// they are. It returns the names of variables for which there is no place.
func AddCheckpointEnv(copy map[string]any, spec *v1alpha1.DispatchSpec) (leftOut []string) {
	if spec.Checkpoint == nil {
		return nil
	}
	fields, _ := copy["trainer"].(map[string]any)
	if fields == nil {
		fields = map[string]any{}
	}
	env, _ := fields["env"].([]any)
	for _, v := range checkpointVariables(spec) {
		switch {
		case slices.ContainsFunc(env, func(other any) bool { return nameOf(other) == v.name }):
		case len(env) >= MaxEnv:
			leftOut = append(leftOut, v.name)
		default:
			// The kubelet reads $$ as $, and would expand $(NAME).
			env = append(env, map[string]any{"name": v.name, "value": strings.ReplaceAll(v.value, "$", "$$")})
		}
	}
	fields["env"] = env
	copy["trainer"] = fields
	return leftOut
}

func nameOf(variable any) string {
	fields, _ := variable.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

// GracePatch returns the entry of CheckpointManager: the pods of some PodSets have a grace period. nil: none has.
func GracePatch(grace *v1alpha1.PodGrace) *trainer.RuntimePatch {
	if grace == nil {
		return nil
	}
	var jobs []trainer.ReplicatedJobPatch
	for _, podSet := range grace.PodSets {
		pod := &trainer.PodSpecPatch{TerminationGracePeriodSeconds: &grace.Seconds}
		jobs = append(jobs, trainer.ReplicatedJobPatch{Name: podSet, Template: &trainer.JobTemplatePatch{
			Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: pod}},
		}})
	}
	return patchBy(CheckpointManager, jobs)
}

// CheckpointOf returns what the Dispatch of a copy said about checkpoints, nil if it said nothing. The job's own
// variables of the same names count for it.
func CheckpointOf(copy *unstructured.Unstructured) *v1alpha1.Checkpoint {
	typed, err := Typed(copy)
	if err != nil {
		return nil
	}
	found, is := v1alpha1.Checkpoint{}, false
	if typed.Spec.Trainer != nil {
		for _, v := range typed.Spec.Trainer.Env {
			value := strings.ReplaceAll(v.Value, "$$", "$")
			switch v.Name {
			case EnvJobUID:
				is = true
			case EnvCheckpointURI:
				found.URI = Cut(value, maxURI)
			case EnvPreviousCluster:
				found.PreviousCluster = v1alpha1.ClusterName(Cut(value, validation.DNS1123SubdomainMaxLength))
			case EnvLastProgress:
				found.LastProgress = Cut(value, maxProgress)
			}
		}
	}
	for _, patch := range typed.Spec.RuntimePatches {
		if patch.Manager == CheckpointManager {
			found.Grace = graceOf(patch)
		}
	}
	if !is && found.Grace == nil {
		return nil
	}
	return &found
}

// graceOf reads an entry of CheckpointManager.
func graceOf(patch trainer.RuntimePatch) *v1alpha1.PodGrace {
	grace := &v1alpha1.PodGrace{}
	for _, job := range PatchedJobs(patch) {
		t := job.Template
		if t == nil || t.Spec == nil || t.Spec.Template == nil || t.Spec.Template.Spec == nil ||
			t.Spec.Template.Spec.TerminationGracePeriodSeconds == nil {
			continue
		}
		grace.Seconds = *t.Spec.Template.Spec.TerminationGracePeriodSeconds
		grace.PodSets = append(grace.PodSets, job.Name)
	}
	if len(grace.PodSets) == 0 || grace.Seconds < 1 {
		return nil
	}
	return grace
}
