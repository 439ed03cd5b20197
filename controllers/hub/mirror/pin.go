// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// A job whose policy pins its runtime gets a TrainingRuntime of its own namespace on the worker, made from the hub's
// runtime. A digest of the spec is in its name, so what is there under the name never changes, and what the worker has
// under the name of the job's runtime does not matter. A runtime that has changed on the hub gets another name.

// Pins keeps pinned runtimes on one worker as long as copies name them. Package pins has it.
type Pins interface {
	// Hold keeps a runtime until release is called, from before the caller looks whether it is there until the copy that names
	// it has been created. ok is false if the runtime is being deleted.
	Hold(key types.NamespacedName) (release func(), ok bool)
}

// pin is the pinned runtime that is made from one version of a runtime of the hub.
type pin struct {
	// version and resourceVersion are those of the hub's runtime. After a restore, the hub may use a version again.
	version, resourceVersion string
	// name of the pinned runtime, and the digest of its spec.
	name, digest string
}

// pinned is what a mirror knows of the hub's runtimes, so that a job costs no request.
type pinned struct {
	mu sync.Mutex
	// latest is under mu. It is by the UID of the hub's runtime.
	latest map[types.UID]pin
}

// of returns the pin of a runtime as the hub's cache shows it. ok is false if the runtime has to be read.
func (p *pinned) of(onHub *metav1.PartialObjectMetadata) (known pin, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok = p.latest[onHub.UID]
	return known, ok && known.version == versionOf(onHub) && known.resourceVersion == onHub.ResourceVersion
}

// note makes the pin of a runtime that was read from the hub's API server. It is remembered if the cache shows the same
// version.
func (p *pinned) note(onHub *metav1.PartialObjectMetadata, full *unstructured.Unstructured, hubID string) (pin, error) {
	digest, err := pinDigest(hubID, full)
	if err != nil {
		return pin{}, err
	}
	made := pin{
		version: versionOf(onHub), resourceVersion: onHub.ResourceVersion, name: suffixed(full.GetName(), digest[:suffixLength]), digest: digest[:digestLength],
	}
	if full.GetAnnotations()[v1alpha1.AnnotationSource] == made.version+"."+replaced {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.latest == nil {
			p.latest = map[types.UID]pin{}
		}
		p.latest[onHub.UID] = made
	}
	return made, nil
}

// digestLength is how much of a digest LabelPinned has: a label has 63 characters at most.
const digestLength = 40

// pinDigest sums up the spec of a runtime, and for which hub it is made: hubs that share a worker share no pins.
func pinDigest(hubID string, full *unstructured.Unstructured) (string, error) {
	spec, err := json.Marshal(full.Object["spec"]) // Maps are encoded in the order of their keys.
	if err != nil {
		return "", fmt.Errorf("encode %s %q: %w", full.GetKind(), full.GetName(), err)
	}
	sum := sha256.Sum256(append([]byte(hubID+"\n"), spec...))
	return hex.EncodeToString(sum[:]), nil
}

// pin makes sure that the worker has the pinned runtime of the job, and sets its name. It returns true if it has written
// the runtime, or somebody else has just now.
func (p *propagation) pin(ctx context.Context) (written bool, err error) {
	kind, key := trainjobs.RuntimeOf(p.job)
	onHub := metadataOf(trainer.SchemeGroupVersion.String(), kind)
	if err := p.hub.Get(ctx, key, onHub); err != nil {
		return false, p.notOnHub(err, kind, key.Name, false)
	}
	if made, known := p.madeOf(onHub); known {
		if there, err := p.usePin(ctx, made); there || err != nil {
			return false, err
		}
	}
	full, err := p.fullRuntime(ctx, onHub)
	if err != nil {
		return false, err
	}
	made, err := p.pinned.note(onHub, full, p.hubID)
	if err != nil {
		return false, err
	}
	if there, err := p.usePin(ctx, made); there || err != nil {
		return false, err
	}
	if !*p.policy.Rules().Propagate.Runtimes {
		return false, p.forbidden(trainer.TrainingRuntimeKind, made.name)
	}
	full.SetKind(trainer.TrainingRuntimeKind)
	full.SetNamespace(p.job.GetNamespace())
	full.SetName(made.name)
	full.SetLabels(merged(full.GetLabels(), map[string]string{v1alpha1.LabelPinned: made.digest}))
	err = p.worker.Create(ctx, full, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) { // The cache is about to show whose it is.
		return true, requeue.Outdated(err.Error())
	}
	return err == nil, p.runtimeRefused(err, kind, key.Name)
}

// madeOf returns the pin of the hub's runtime without a request, if that is the version that was counted.
func (p *propagation) madeOf(onHub *metav1.PartialObjectMetadata) (made pin, known bool) {
	made, known = p.pinned.of(onHub)
	return made, known && (p.counted == "" || p.counted == made.version)
}

// usePin has the copy name a pinned runtime, and holds it. It returns true if the worker's cache shows it.
func (p *propagation) usePin(ctx context.Context, made pin) (there bool, err error) {
	p.letGo()
	release, ok := p.pins.Hold(types.NamespacedName{Namespace: p.job.GetNamespace(), Name: made.name})
	if !ok {
		return false, requeue.Outdated(fmt.Sprintf("TrainingRuntime %q is being deleted on worker %q", made.name, p.cluster))
	}
	p.release, p.runtimeName = release, made.name
	return p.hasPin(ctx, made)
}

// letGo ends what usePin holds.
func (p *propagation) letGo() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// hasPin says whether the worker has a pinned runtime as it was made. It fails if something else has the name.
func (p *propagation) hasPin(ctx context.Context, made pin) (bool, error) {
	onWorker := metadataOf(trainer.SchemeGroupVersion.String(), trainer.TrainingRuntimeKind)
	err := p.worker.Get(ctx, types.NamespacedName{Namespace: p.job.GetNamespace(), Name: made.name}, onWorker)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	fault := ""
	switch {
	case onWorker.Labels[v1alpha1.LabelPropagatedBy] != p.hubID, onWorker.Labels[v1alpha1.LabelPinned] != made.digest:
		fault = "is there, and this hub has not made it: rename or delete it"
	case onWorker.DeletionTimestamp != nil:
		return false, going{p.pinRefusal(onWorker, "is being deleted")}
	case onWorker.Generation != 1:
		fault = "has been changed since this hub has made it: delete it, and the hub makes it again"
	default:
		return true, nil
	}
	return false, p.pinRefusal(onWorker, fault)
}

// pinRefusal is the refusal of a worker on which the name of a pinned runtime cannot be used.
func (p *propagation) pinRefusal(onWorker client.Object, fault string) refusal {
	return refusal(fmt.Sprintf("the policy pins the runtime, and the copy needs TrainingRuntime %s/%s on worker %q, which %s",
		onWorker.GetNamespace(), onWorker.GetName(), p.cluster, fault))
}

// pinGoesLimit is for how long a job waits for the end of a pinned runtime. A Kubeflow Trainer before 2.3 keeps runtimes by a finalizer
// until no TrainJob names them, and takes it off within a second when none does.
const pinGoesLimit = 10 * time.Second

// going is a refusal because of a pinned runtime that is being deleted: it may be gone soon, and is made again then.
type going struct{ refusal }

// Unwrap returns the refusal.
func (g going) Unwrap() error { return g.refusal }

// awaitsPin is true for an error that says that a pinned runtime is being deleted, while the job waits for its end.
func (c *creator) awaitsPin(err error) bool {
	return errors.As(err, new(going)) && c.attempt.creation.pinGoes.elapsed(c.clock.Now()) < pinGoesLimit && c.seen.dispatch.Spec.Eviction == nil
}

// isPinned says whether pin would send no request, and sets the name of the pinned runtime.
func (p *propagation) isPinned(ctx context.Context) bool {
	kind, key := trainjobs.RuntimeOf(p.job)
	onHub := metadataOf(trainer.SchemeGroupVersion.String(), kind)
	if p.hub.Get(ctx, key, onHub) != nil {
		return false
	}
	made, known := p.madeOf(onHub)
	if !known {
		return false
	}
	p.runtimeName = made.name
	there, err := p.hasPin(ctx, made)
	return there && err == nil
}

// unheld are the Pins of a worker on which nobody deletes pinned runtimes.
type unheld struct{}

func (unheld) Hold(types.NamespacedName) (release func(), ok bool) { return func() {}, true }
