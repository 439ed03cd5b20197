// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Dir archives to files in a directory, one for each day (UTC) and writer: trainjobs-2026-11-23-WRITER.jsonl. Only the
// owner can read them: the specs of jobs may have secrets. No name comes from a job.
type Dir struct {
	writer string

	mu sync.Mutex
	// root, file and day are under mu: entries are written one after the other. file is nil if the next entry has to open
	// one. day is the day of file.
	root *os.Root
	file *os.File
	day  string
}

// NewDir opens an existing directory. No two processes may have the same writer in one directory.
func NewDir(path, writer string) (*Dir, error) {
	root, err := os.OpenRoot(path) // Nothing is written outside of it, whatever links it has.
	if err != nil {
		return nil, err
	}
	return &Dir{writer: url.PathEscape(writer), root: root}, nil
}

// Close closes the directory. Keep fails from then on.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.closeFile(), d.root.Close())
}

// Keep writes an entry, and returns when it is on disk.
func (d *Dir) Keep(_ context.Context, entry Entry) error {
	line, err := entry.line()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open(entry.ArchivedAt.Format("2006-01-02")); err != nil {
		return err
	}
	if _, err = d.file.Write(line); err == nil {
		err = d.file.Sync()
	}
	if err != nil { // A part of the line may be there. Opening the file again ends it.
		return errors.Join(fmt.Errorf("write to the archive: %w", err), d.closeFile())
	}
	return nil
}

// open opens the file of a day, unless it is open.
func (d *Dir) open(day string) error {
	name := fmt.Sprintf("trainjobs-%s-%s.jsonl", day, d.writer)
	if d.file != nil && d.day == day && d.isCurrent(name) {
		return nil
	}
	if err := d.closeFile(); err != nil {
		return fmt.Errorf("close the archive of %s: %w", d.day, err)
	}
	file, err := d.root.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the archive of %s: %w", day, err)
	}
	d.file, d.day = file, day
	if err := errors.Join(d.endLine(), d.syncNames()); err != nil {
		return errors.Join(fmt.Errorf("open the archive of %s: %w", day, err), d.closeFile())
	}
	return nil
}

// isCurrent is false if the open file has another name now: an admin has moved or deleted it.
func (d *Dir) isCurrent(name string) bool {
	there, err := d.root.Lstat(name)
	if err != nil {
		return false
	}
	open, err := d.file.Stat()
	return err == nil && os.SameFile(there, open)
}

// endLine ends a line that a crash or a full disk has cut.
func (d *Dir) endLine() error {
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := d.file.ReadAt(last, size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = d.file.WriteString("\n")
	return err
}

// syncNames makes the name of a new file survive a crash.
func (d *Dir) syncNames() error {
	directory, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

func (d *Dir) closeFile() error {
	if d.file == nil {
		return nil
	}
	file := d.file
	d.file = nil
	return file.Close()
}

// Entry is a job that is about to be deleted.
type Entry struct {
	TrainJob *unstructured.Unstructured `json:"trainJob"`
	// Dispatch has the history of the job's attempts.
	Dispatch   *v1alpha1.Dispatch `json:"dispatch"`
	ArchivedAt time.Time          `json:"archivedAt"`
}

// line encodes an entry in one line, with its end. JSON has no line breaks of its own, and writes line breaks of users
// as \n. The size is bounded by what etcd takes for the two objects. Managed fields, and kubectl's copy of the job, are
// left out.
func (e Entry) line() ([]byte, error) {
	e.TrainJob, e.Dispatch = e.TrainJob.DeepCopy(), e.Dispatch.DeepCopy()
	trainjobs.StripMetadata(e.TrainJob)
	e.Dispatch.ManagedFields = nil
	e.Dispatch.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dispatch"))
	encoded, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(encoded, '\n'), nil
}
