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
		s.wantThere("job", true, "it is archived first")
		return err
	})
	s.start(false)
	s.ended("job", ttl("0"))
	s.pass("job")
	s.wantThere("job", false, "its time is over")
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
	s.start(false)
	s.ended("job", ttl("0"))
	if _, err := s.reconcile("job"); !errors.Is(err, full) {
		t.Errorf("Reconcile() = %v, want an error that brings the job again", err)
	}
	s.wantThere("job", true, "it is not archived")
	told := strings.Join(s.told.about("job"), "\n")
	if !strings.Contains(told, "ArchiveFailed") || !strings.Contains(told, full.Error()) {
		t.Errorf("Events: %q, want what the archive says", told)
	}
	full = nil
	s.pass("job")
	s.wantThere("job", false, "the archive has it")
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
		s.ended(fmt.Sprintf("job-%d", i), ttl("0"))
	}
	s.start(true)
	for i := range jobs {
		s.awaitGone(fmt.Sprintf("job-%d", i))
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
			s.annotate("job", "3600")
		}
		return nil
	})
	s.start(false)
	s.ended("job", ttl("0"))
	if again := s.pass("job"); again == 0 {
		t.Error("the job does not come again after a conflict")
	}
	s.wantThere("job", true, "its owner has given it more time")
	if s.pass("job"); written != 1 {
		t.Errorf("archived %d times, want once", written)
	}
	change = false
	s.annotate("job", "0")
	s.pass("job")
	s.wantThere("job", false, "its time is over again")
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
	s.start(false)
	s.ended("job", ttl("0"))
	s.sync()
	s.stop()
	check.Must(t, s.hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "job"}}))
	check.Must(t, s.hub.Admin.Delete(t.Context(), check.Dispatch(t, s.hub.Admin, s.key("job"))))
	s.submit("job")
	if result, err := s.reconciler.Reconcile(t.Context(), request(s.key("job"))); err != nil || result.RequeueAfter == 0 {
		t.Errorf("Reconcile() = %v, %v, want another pass", result, err)
	}
	s.wantThere("job", true, "it is another job")
}
