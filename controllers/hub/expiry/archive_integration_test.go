// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
	"github.com/trainyard/trainyard/test/check"
)

// archiver is an archive that calls a function.
type archiver func(context.Context, archive.Entry) error

// Keep implements expiry.Archive.
func (a archiver) Keep(ctx context.Context, entry archive.Entry) error { return a(ctx, entry) }

// TestArchive: a job is in the archive as the API server had it, with the history of its Dispatch, before it goes. The
// caches have less of a finished job.
func TestArchive(t *testing.T) {
	s := newScene(t)
	path := t.TempDir()
	dir, err := archive.NewDir(path, "manager-0")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, dir.Close()) })
	s.options.Archive = archiver(func(ctx context.Context, entry archive.Entry) error {
		err := dir.Keep(ctx, entry)
		s.wantThere(t, "job", true, "it is archived first")
		return err
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	s.pass(t, "job")
	s.wantThere(t, "job", false, "its time is over")
	files, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the archive has the files %q, %v, want one", files, err)
	}
	data, err := os.ReadFile(files[0])
	check.Must(t, err)
	var got archive.Entry
	if err := json.Unmarshal(bytes.TrimSuffix(data, []byte("\n")), &got); err != nil {
		t.Fatalf("the archive has %s: %v", data, err)
	}
	runtime, _, _ := unstructured.NestedString(got.TrainJob.Object, "spec", "runtimeRef", "name")
	if runtime != "torch-distributed" || len(got.Dispatch.Spec.PodSets) != 1 || len(got.Dispatch.Status.History) != 1 {
		t.Errorf("the archive has %s, want the whole spec, the demand and the history", data)
	}
}

// TestArchiveFails: a job that cannot be archived stays, its owner hears why, and it is tried again.
func TestArchiveFails(t *testing.T) {
	s := newScene(t)
	full := errors.New("no space left on device")
	s.options.Archive = archiver(func(context.Context, archive.Entry) error { return full })
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	if _, err := s.reconcile(t, "job"); !errors.Is(err, full) {
		t.Errorf("Reconcile() = %v, want an error that brings the job again", err)
	}
	s.wantThere(t, "job", true, "it is not archived")
	told := strings.Join(s.Events.About("job"), "\n")
	if !strings.Contains(told, "ArchiveFailed") || !strings.Contains(told, full.Error()) {
		t.Errorf("Events: %q, want what the archive says", told)
	}
	full = nil
	s.pass(t, "job")
	s.wantThere(t, "job", false, "the archive has it")
}

// TestArchiveSideBySide: an archive or a hub that answers slowly does not make the controller fall behind, because it
// does not work on one job after the other.
func TestArchiveSideBySide(t *testing.T) {
	const jobs = 16
	s := newScene(t)
	var inside atomic.Int32
	together := make(chan struct{})
	s.options.Archive = archiver(func(ctx context.Context, _ archive.Entry) error {
		if inside.Add(1) == jobs {
			close(together)
		}
		select {
		case <-together:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for i := range jobs {
		s.ended(t, fmt.Sprintf("job-%d", i), ttl("0"))
	}
	s.start(t, true)
	for i := range jobs {
		s.awaitGone(t, fmt.Sprintf("job-%d", i))
	}
}

// TestArchivedAgain: a job that changes after it was archived is not deleted, and is archived again when its time is
// over.
func TestArchivedAgain(t *testing.T) {
	s := newScene(t)
	written := 0
	change := true
	s.options.Archive = archiver(func(context.Context, archive.Entry) error {
		written++
		if change { // Between the archive and the deletion.
			s.annotate(t, "job", "3600")
		}
		return nil
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	if again := s.pass(t, "job"); again == 0 {
		t.Error("the job does not come again after a conflict")
	}
	s.wantThere(t, "job", true, "its owner has given it more time")
	if s.pass(t, "job"); written != 1 {
		t.Errorf("archived %d times, want once", written)
	}
	change = false
	s.annotate(t, "job", "0")
	s.pass(t, "job")
	s.wantThere(t, "job", false, "its time is over again")
	if written != 2 {
		t.Errorf("archived %d times, want twice: the job had changed", written)
	}
}

// TestArchiveOfAnotherJob: what is archived is what is deleted. A job that was created again is not archived.
func TestArchiveOfAnotherJob(t *testing.T) {
	s := newScene(t)
	s.options.Archive = archiver(func(_ context.Context, entry archive.Entry) error {
		t.Errorf("archived %v", entry.TrainJob)
		return nil
	})
	s.start(t, false)
	s.ended(t, "job", ttl("0"))
	s.Settle(t, s.options.Hub)
	s.stop()
	check.Must(t, s.Hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"}}))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, "job")))
	s.submit(t, "job")
	if result, err := s.reconciler.Reconcile(t.Context(), request(s.Key("job"))); err != nil || result.RequeueAfter == 0 {
		t.Errorf("Reconcile() = %v, %v, want another pass", result, err)
	}
	s.wantThere(t, "job", true, "it is another job")
}
