// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
)

func attempt(uid types.UID, number int32) logarchive.Attempt {
	return logarchive.Attempt{Namespace: "team", Job: "job", UID: uid, Number: number}
}

func open(t *testing.T, path string) *logarchive.Archive {
	t.Helper()
	dir, err := logarchive.NewDir(path)
	check.Must(t, err)
	return &logarchive.Archive{Store: dir}
}

// keep keeps one log of a pod, with the index.
func keep(t *testing.T, a *logarchive.Archive, of logarchive.Attempt, pod, text string) {
	t.Helper()
	c := logarchive.Container{Name: "node", Bytes: int64(len(text)), Whole: true}
	check.Must(t, a.Keep(t.Context(), of, pod, &c, []byte(text)))
	check.Must(t, a.WriteIndex(t.Context(), &logarchive.Index{
		Attempt: of, NamespaceUID: "ns-1", Worker: "east", Reason: "Complete",
		Pods: []logarchive.Pod{{Name: pod, Containers: []logarchive.Container{c}}},
	}))
}

func files(t *testing.T, path string) (names []string) {
	t.Helper()
	check.Must(t, filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			short, _ := filepath.Rel(path, name)
			names = append(names, short)
		}
		return err
	}))
	return names
}

// TestAttempts: no attempt and no job of the same name replaces what is kept of another.
func TestAttempts(t *testing.T) {
	path := t.TempDir()
	a := open(t, path)
	keep(t, a, attempt("uid-1", 1), "job-node-0-0-aaaaa", "first")
	keep(t, a, attempt("uid-1", 2), "job-node-0-0-bbbbb", "second")
	keep(t, a, attempt("uid-2", 1), "job-node-0-0-aaaaa", "of the next job")
	want := []string{
		"team/job/uid-1/1/index.json", "team/job/uid-1/1/job-node-0-0-aaaaa/node.log",
		"team/job/uid-1/2/index.json", "team/job/uid-1/2/job-node-0-0-bbbbb/node.log",
		"team/job/uid-2/1/index.json", "team/job/uid-2/1/job-node-0-0-aaaaa/node.log",
	}
	if diff := cmp.Diff(want, files(t, path)); diff != "" {
		t.Errorf("files: %s", diff)
	}
	found, err := a.Find(t.Context(), "team", "ns-1", "job-node-0-0-bbbbb", []string{"job-node", "job"})
	check.Must(t, err)
	text, err := a.Read(t.Context(), found.Index.Attempt, found.Pod.Name, found.Pod.Log("node", false))
	check.Must(t, err)
	check.Equal(t, "second", string(text), "the log")
	has, err := a.Has(t.Context(), attempt("uid-1", 3))
	check.Equal(t, false, has || err != nil, "a later attempt is kept")
}

// TestOtherNamespace: a namespace that is made again does not show the logs of the one before.
func TestOtherNamespace(t *testing.T) {
	a := open(t, t.TempDir())
	keep(t, a, attempt("uid-1", 1), "job-node-0-0-aaaaa", "secret")
	for uid, want := range map[types.UID]bool{"ns-1": true, "ns-2": false, "": false} {
		found, err := a.Find(t.Context(), "team", uid, "job-node-0-0-aaaaa", []string{"job"})
		check.Must(t, err)
		check.Equal(t, want, found.Pod != nil, "found in the namespace with UID %q", uid)
		check.Equal(t, 0, len(found.Others), "other attempts")
	}
}

// TestEvilNames: workers choose the names of pods and containers, and none of them leads anywhere else.
func TestEvilNames(t *testing.T) {
	path := t.TempDir()
	a := open(t, path)
	good := attempt("uid-1", 1)
	for name, tc := range map[string]struct {
		of             logarchive.Attempt
		pod, container string
	}{
		"Parent":        {good, "job-/../../../x", "node"},
		"Dots":          {good, "..", "node"},
		"Slash":         {good, "job-a/b", "node"},
		"Index":         {good, "index.json", "node"},
		"OfAnotherJob":  {good, "other-node-0-0-aaaaa", "node"},
		"Empty":         {good, "", "node"},
		"Null":          {good, "job-\x00", "node"},
		"Upper":         {good, "job-A", "node"},
		"Long":          {good, "job-" + strings.Repeat("a", 300), "node"},
		"Container":     {good, "job-a", "../../node"},
		"Previous":      {good, "job-a", "node.previous"},
		"NoContainer":   {good, "job-a", ""},
		"UID":           {attempt("../x", 1), "job-a", "node"},
		"NoUID":         {attempt("", 1), "job-a", "node"},
		"Zero":          {attempt("uid-1", 0), "job-a", "node"},
		"Negative":      {attempt("uid-1", -1), "job-a", "node"},
		"EvilNamespace": {logarchive.Attempt{Namespace: "..", Job: "job", UID: "u", Number: 1}, "job-a", "node"},
		"EvilJob":       {logarchive.Attempt{Namespace: "team", Job: "a/b", UID: "u", Number: 1}, "a/b-c", "node"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &logarchive.Container{Name: tc.container}
			if err := a.Keep(t.Context(), tc.of, tc.pod, c, []byte("x")); err == nil {
				t.Error("it is kept")
			}
			if _, err := a.Read(t.Context(), tc.of, tc.pod, c); err == nil {
				t.Error("it is read")
			}
		})
	}
	if found := files(t, path); len(found) > 0 {
		t.Errorf("there are the files %q", found)
	}
	for _, job := range []string{"..", "a/b", "", "."} {
		found, err := a.Find(t.Context(), "team", "ns-1", "x", []string{job})
		check.Must(t, err)
		check.Equal(t, true, found.Pod == nil, "pod of job %q", job)
	}
}

// TestForgedIndex: an index in the place of another one, or that names a pod of another job, is not believed.
func TestForgedIndex(t *testing.T) {
	path := t.TempDir()
	a := open(t, path)
	keep(t, a, attempt("uid-1", 1), "job-node-0-0-aaaaa", "first")
	from := filepath.Join(path, "team/job/uid-1/1/index.json")
	text, err := os.ReadFile(from)
	check.Must(t, err)
	check.Must(t, os.MkdirAll(filepath.Join(path, "team/job/uid-1/2"), 0o700))
	check.Must(t, os.WriteFile(filepath.Join(path, "team/job/uid-1/2/index.json"), text, 0o600))
	if _, err := a.Find(t.Context(), "team", "ns-1", "job-node-0-0-aaaaa", []string{"job"}); err == nil {
		t.Error("the index of another attempt counts")
	}
}

// TestLinks: a link in the directory leads nowhere else.
func TestLinks(t *testing.T) {
	path, outside := t.TempDir(), t.TempDir()
	a := open(t, path)
	check.Must(t, os.Symlink(outside, filepath.Join(path, "team")))
	if err := a.Keep(t.Context(), attempt("uid-1", 1), "job-a", &logarchive.Container{Name: "node"}, []byte("x")); err == nil {
		t.Error("it is written")
	}
	if found := files(t, outside); len(found) > 0 {
		t.Errorf("outside there is %q", found)
	}
}

// TestWritten: who reads sees all of a file or nothing, however many write it, and only its owner may read it.
func TestWritten(t *testing.T) {
	path := t.TempDir()
	dir, err := logarchive.NewDir(path)
	check.Must(t, err)
	texts := [][]byte{[]byte(strings.Repeat("a", 1<<16)), []byte(strings.Repeat("b", 1<<16))}
	var all sync.WaitGroup
	for _, text := range texts {
		all.Go(func() {
			for range 20 {
				check.Must(t, dir.Put(t.Context(), "a/b/c", text))
			}
		})
	}
	for range 50 {
		got, err := dir.Get(t.Context(), "a/b/c", 1<<20)
		if errors.Is(err, logarchive.ErrNotFound) {
			continue
		}
		check.Must(t, err)
		if !slices.ContainsFunc(texts, func(text []byte) bool { return string(text) == string(got) }) {
			t.Fatalf("%d bytes are neither text", len(got))
		}
	}
	all.Wait()
	if diff := cmp.Diff([]string{"a/b/c"}, files(t, path)); diff != "" {
		t.Errorf("files: %s", diff)
	}
	info, err := os.Stat(filepath.Join(path, "a/b/c"))
	check.Must(t, err)
	check.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "mode")
	if _, err := dir.Get(t.Context(), "a/b/c", 100); err == nil {
		t.Error("more than the limit is read")
	}
	names, err := dir.List(t.Context(), "a/none")
	check.Equal(t, 0, len(names), "names below nothing, %v", err)
}
