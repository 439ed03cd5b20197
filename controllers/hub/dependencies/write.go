// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// write makes an object on the worker what it is on the hub, for a job or, if job is empty, for those that run. It leaves
// objects alone that are not ours, and remembers the words about them.
func (k *Reconciler) write(ctx context.Context, worker copies.Worker, w wanted, job types.UID) error {
	sent, err := k.read(ctx, w.object)
	if err != nil {
		return err
	}
	if sent.isToken {
		k.known.note(w.object, there{source: w.source, left: fmt.Sprintf("%s is a token of a ServiceAccount: such a token is never brought to a worker",
			w.Dependency)})
		return nil
	}
	if words, err := k.guard(ctx, worker, w.Namespace); err != nil || words != "" {
		k.known.note(w.object, there{source: w.source, left: words})
		return err
	}
	version, existed, err := k.put(ctx, worker, w.object, sent)
	if answer := answers.Of(err); answer == answers.NoRights || answer == answers.Unacceptable {
		return k.notPut(ctx, worker, w.object, sent, job, existed, err)
	}
	if err != nil {
		return withoutContents(err, "write %s in namespace %q on worker %q", w.Dependency, w.Namespace, k.Cluster)
	}
	k.known.note(w.object, there{source: sent.source, version: version, pulls: pullsOf(sent, k.known.of(w.object).pulls)})
	return nil
}

// guard says in words why nothing may be written, empty if the worker's policy is in force: it keeps the hub from objects
// that are not ours. The worker is asked once, by the creation of an object that the policy refuses, as a dry run.
func (k *Reconciler) guard(ctx context.Context, worker copies.Worker, namespace string) (string, error) {
	if k.guarded {
		return "", nil
	}
	without := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: policyName}}
	err := worker.Create(ctx, without, client.DryRunAll)
	switch {
	case isDenied(err):
		k.guarded = true
		return "", nil
	case err == nil, apierrors.IsAlreadyExists(err):
		return fmt.Sprintf("nothing was brought: the worker lacks the ValidatingAdmissionPolicy %s, which config/worker-dependencies has too", policyName), nil
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return forbids, nil
	}
	return "", fmt.Errorf("look for the policy %s on worker %q: %w", policyName, k.Cluster, err)
}

// policyName is the name of the policy of config/worker-dependencies.
const policyName = "trainyard-dependencies"

// forbids is what is said of a worker that does not grant the rights.
const forbids = "nothing could be written: the worker forbids it, which grants the rights of config/worker-dependencies if its admin permits it"

// isDenied says whether the policy of config/worker-dependencies has refused a request.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policyName+"'")
}

// put creates the object, or replaces it if it is there. The policy of the worker refuses to replace what is not ours.
// existed is true if it was there.
func (k *Reconciler) put(ctx context.Context, worker copies.Worker, o object, sent *full) (version client.Preconditions, existed bool, err error) {
	whole, known := sent.DeepCopy(), k.known.of(o).version
	if known.UID == nil {
		err := worker.Create(ctx, whole, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
		if !apierrors.IsAlreadyExists(err) {
			return versionOf(whole), false, err
		}
		whole = sent.DeepCopy()
	} else {
		whole.SetUID(*known.UID)
	}
	err = worker.Update(ctx, whole, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		k.known.forget(o)
		return version, true, requeue.Outdated(fmt.Sprintf("somebody has deleted %s", o.Dependency))
	}
	return versionOf(whole), true, err
}

// notPut decides what a refusal of an object means.
func (k *Reconciler) notPut(
	ctx context.Context, worker copies.Worker, o object, sent *full, job types.UID, existed bool, refusal error,
) error {
	switch {
	case isDenied(refusal):
		k.known.note(o, foreign(o, sent))
		return nil
	case apierrors.IsForbidden(refusal) && !apierrors.HasStatusCause(refusal, corev1.NamespaceTerminatingCause):
		k.known.note(o, there{source: sent.source, left: fmt.Sprintf("%s: %s", o.Dependency, forbids)})
		return nil
	case existed && isImmutable(refusal):
		return k.replace(ctx, worker, o, sent, job)
	}
	return withoutContents(refusal, "write %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
}

// foreign is what is known of an object on the worker that is not ours.
func foreign(o object, sent *full) there {
	return there{source: sent.source, left: fmt.Sprintf("%s is on the worker already, and is not this hub's: it is left as it is, and the pods get that",
		o.Dependency)}
}

// isImmutable is true for the refusal of a change of fields that cannot change.
func isImmutable(refusal error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(refusal) || !errors.As(refusal, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool { return !strings.Contains(cause.Message, "immutable") })
}

// replace deletes an object that cannot be changed, and creates it as it is on the hub. While copies of others use it, it
// leaves it, and refuses the job that needs the new one.
func (k *Reconciler) replace(ctx context.Context, worker copies.Worker, o object, sent *full, job types.UID) error {
	version := k.known.of(o).version
	if isDenied(remove(ctx, worker, o, version, client.DryRunAll)) {
		k.known.note(o, foreign(o, sent))
		return nil
	}
	used, err := k.named(ctx, worker, o.Namespace, job)
	if err != nil {
		return err
	}
	if used.Has(o) || job == "" {
		k.known.note(o, there{source: sent.source, version: version, refused: true})
		if job == "" {
			log.FromContext(ctx).Info("Object cannot be changed while jobs use it", "namespace", o.Namespace, "kind", o.Kind, "name", o.Name)
			return nil
		}
		return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "%s is immutable, and has changed on the hub: running copies on worker %q use "+
			"the earlier version; when they have ended, the worker can get the newer one", o.Dependency, k.Cluster)
	}
	if err := k.notDeleted(remove(ctx, worker, o, version), o); err != nil {
		return err
	}
	k.known.forget(o)
	if version, _, err = k.put(ctx, worker, o, sent); err != nil {
		return withoutContents(err, "write %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
	}
	k.known.note(o, there{source: sent.source, version: version})
	return nil
}

// delete deletes an object on the worker if it is ours.
func (k *Reconciler) delete(ctx context.Context, worker copies.Worker, o object) error {
	words, err := k.guard(ctx, worker, o.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil // The namespace is gone.
	case err != nil:
		return err
	case words != "":
		return reconcile.TerminalError(fmt.Errorf("delete %s in namespace %q on worker %q: %s", o.Dependency, o.Namespace, k.Cluster, words))
	}
	err = remove(ctx, worker, o, k.known.of(o).version)
	if isDenied(err) || apierrors.IsConflict(err) {
		return nil // Another one has its name.
	}
	return k.notDeleted(err, o)
}

// remove deletes an object, on the condition of its version if that is known.
func remove(
	ctx context.Context, worker copies.Worker, o object, version client.Preconditions, options ...client.DeleteOption,
) error {
	onWorker := metadataOf(o.Kind)
	onWorker.Namespace, onWorker.Name = o.Namespace, o.Name
	return client.IgnoreNotFound(worker.Delete(ctx, onWorker, append(options, version)...))
}

// notDeleted adds to the error of a deletion what was to be deleted. Without the right another try does not help, until
// the next connection.
func (k *Reconciler) notDeleted(err error, o object) error {
	if err == nil {
		return nil
	}
	forbidden := apierrors.IsForbidden(err)
	err = withoutContents(err, "delete %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
	if forbidden {
		return reconcile.TerminalError(err)
	}
	return err
}

func versionOf(object client.Object) client.Preconditions {
	uid := object.GetUID()
	if uid == "" {
		return client.Preconditions{}
	}
	return client.Preconditions{UID: &uid}
}

// refused is a refusal in our words. It counts as one by the worker.
func refused(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

// withoutContents returns an error that counts as err does, and says which fields are at fault, without the words: they may
// quote what was sent, and everybody who sees the job would read them.
func withoutContents(err error, format string, args ...any) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf(format+": %w", append(args, err)...)
	}
	from := status.Status()
	words := fmt.Sprintf(format, args...) + ": " + string(from.Reason)
	kept := &metav1.StatusDetails{}
	if from.Details != nil {
		kept.RetryAfterSeconds = from.Details.RetryAfterSeconds
		var fields []string
		for _, cause := range from.Details.Causes {
			if cause.Field != "" {
				fields = append(fields, cause.Field)
			}
		}
		if len(fields) > 0 {
			words += ", because of " + strings.Join(fields, ", ")
		}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: from.Code, Reason: from.Reason, Message: words, Details: kept,
	}}
}
