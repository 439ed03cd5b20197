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
		k.note(w.object, there{source: w.source, left: fmt.Sprintf("%s is a token of a ServiceAccount: such a token is never brought to a worker",
			w.Dependency)})
		return nil
	}
	version, err := k.put(ctx, worker, w.object, sent)
	if answer := answers.Of(err); answer == answers.NoRights || answer == answers.Unacceptable {
		return k.notPut(ctx, worker, w.object, sent, job, err)
	}
	if err != nil {
		return withoutContents(err, "write %s in namespace %q on worker %q", w.Dependency, w.Namespace, k.Cluster)
	}
	k.note(w.object, there{source: sent.source, version: version})
	return nil
}

// put creates the object, or patches it if it is there and ours.
func (k *Reconciler) put(ctx context.Context, worker copies.Worker, o object, sent *full) (version client.Preconditions, err error) {
	if k.knownOf(o).version.UID == nil {
		created := sent.DeepCopy()
		err := worker.Create(ctx, created, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
		if !apierrors.IsAlreadyExists(err) {
			return versionOf(created), err
		}
	}
	changes, err := k.patchOf(sent)
	if err != nil {
		return version, err
	}
	version, err = k.patch(ctx, worker, o, changes)
	if apierrors.IsNotFound(err) {
		k.forget(o)
		return version, requeue.Outdated(fmt.Sprintf("somebody has deleted %s", o.Dependency))
	}
	return version, err
}

// patch sends a patch. The worker answers with metadata only.
func (k *Reconciler) patch(ctx context.Context, worker copies.Worker, o object, changes client.Patch) (client.Preconditions, error) {
	answer := metadataOf(o.Kind)
	answer.Namespace, answer.Name = o.Namespace, o.Name
	err := worker.Patch(ctx, answer, changes, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	return versionOf(answer), err
}

// probe returns the version of the object on the worker if it is ours. Otherwise it returns a version without UID.
func (k *Reconciler) probe(ctx context.Context, worker copies.Worker, o object) (version client.Preconditions, err error) {
	test, err := patch([]operation{k.ifOurs()})
	if err != nil {
		return version, err
	}
	version, err = k.patch(ctx, worker, o, test)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return client.Preconditions{}, nil
	}
	return version, err
}

// notPut decides what a refusal of an object means.
func (k *Reconciler) notPut(ctx context.Context, worker copies.Worker, o object, sent *full, job types.UID, refusal error) error {
	leave := func(format string, args ...any) error {
		k.note(o, there{source: sent.source, left: fmt.Sprintf("%s %s", o.Dependency, fmt.Sprintf(format, args...))})
		return nil
	}
	if apierrors.IsForbidden(refusal) && !apierrors.HasStatusCause(refusal, "NamespaceTerminating") {
		return leave("could not be written: the worker forbids it, which grants the rights of config/worker-dependencies if its admin permits it")
	}
	version, err := k.probe(ctx, worker, o)
	switch {
	case err != nil:
		return withoutContents(err, "look at %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
	case version.UID == nil && apierrors.IsInvalid(refusal) && k.isThere(ctx, worker, sent):
		return leave("is on the worker already, and is not this hub's: it is left as it is, and the pods get that")
	case version.UID == nil || !isImmutable(refusal):
		return withoutContents(refusal, "write %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
	}
	return k.replace(ctx, worker, o, sent, version, job)
}

// isImmutable is true for the refusal of a change of fields that cannot change. An object that cannot be decoded is a fault
// of the field "patch".
func isImmutable(refusal error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(refusal) || !errors.As(refusal, &status) || status.Status().Details == nil {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "patch" })
}

// isThere says whether the worker has an object of the name, by a creation that is a dry run.
func (k *Reconciler) isThere(ctx context.Context, worker copies.Worker, sent *full) bool {
	return apierrors.IsAlreadyExists(worker.Create(ctx, sent.DeepCopy(), client.DryRunAll))
}

// replace deletes an object that cannot be changed, and creates it as it is on the hub. While copies of others use it, it
// leaves it, and refuses the job that needs the new one.
func (k *Reconciler) replace(
	ctx context.Context, worker copies.Worker, o object, sent *full, version client.Preconditions, job types.UID,
) error {
	used, err := k.named(ctx, worker, o.Namespace, job)
	if err != nil {
		return err
	}
	if used.Has(o) || job == "" {
		k.note(o, there{source: sent.source, version: version, refused: true})
		if job == "" {
			log.FromContext(ctx).Info("Object cannot be changed while jobs use it", "namespace", o.Namespace, "kind", o.Kind, "name", o.Name)
			return nil
		}
		return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "%s is immutable, and has changed on the hub: running copies on worker %q use "+
			"the earlier version; when they have ended, the worker can get the newer one", o.Dependency, k.Cluster)
	}
	if err := k.deleteVersion(ctx, worker, o, version); err != nil {
		return err
	}
	k.forget(o)
	if version, err = k.put(ctx, worker, o, sent); err != nil {
		return withoutContents(err, "write %s in namespace %q on worker %q", o.Dependency, o.Namespace, k.Cluster)
	}
	k.note(o, there{source: sent.source, version: version})
	return nil
}

// delete deletes an object on the worker if it is ours.
func (k *Reconciler) delete(ctx context.Context, worker copies.Worker, o object) error {
	version := k.knownOf(o).version
	if version.UID != nil {
		err := k.deleteVersion(ctx, worker, o, version)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	version, err := k.probe(ctx, worker, o) // Somebody has changed it: perhaps it is not ours any more.
	switch {
	case err != nil:
		return k.notDeleted(err, o)
	case version.UID == nil:
		return nil
	}
	return k.deleteVersion(ctx, worker, o, version)
}

func (k *Reconciler) deleteVersion(ctx context.Context, worker copies.Worker, o object, version client.Preconditions) error {
	onWorker := metadataOf(o.Kind)
	onWorker.Namespace, onWorker.Name = o.Namespace, o.Name
	return k.notDeleted(client.IgnoreNotFound(worker.Delete(ctx, onWorker, version)), o)
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
	uid, version := object.GetUID(), object.GetResourceVersion()
	if uid == "" {
		return client.Preconditions{}
	}
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
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

// ignoreMissing returns nil for an error that says: the namespace is not there.
func ignoreMissing(err error) error { return client.IgnoreNotFound(err) }
