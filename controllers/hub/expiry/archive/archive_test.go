// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
	"github.com/trainyard/trainyard/test/check"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const today = "trainjobs-2026-11-23-manager-0.jsonl"

// entry is a job whose user tries to write lines of their own, and names that lead elsewhere.
func entry(name string, at time.Time) archive.Entry {
	job := trainjobs.New()
	job.SetNamespace("../../etc")
	job.SetName(name)
	job.SetAnnotations(map[string]string{
		"note": "a\n{\"trainJob\":{}}\r\u2028b", corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 1000),
	})
	job.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	return archive.Entry{TrainJob: job, ArchivedAt: at, Dispatch: &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: job.GetManagedFields()},
		Status:     v1alpha1.DispatchStatus{History: []v1alpha1.Attempt{{Attempt: 3, Cluster: "east"}}},
	}}
}

func open(t *testing.T, path string) *archive.Dir {
	t.Helper()
	dir, err := archive.NewDir(path, "manager-0")
	check.Must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

// names returns the names of the jobs in a file, and of each line that is not JSON its text.
func names(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	check.Must(t, err)
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line archive.Entry
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			found = append(found, lines.Text())
			continue
		}
		found = append(found, line.TrainJob.GetName())
	}
	return found
}

func TestLine(t *testing.T) {
	path := t.TempDir()
	given := entry("job", noon)
	check.Must(t, open(t, path).Keep(t.Context(), given))
	data, err := os.ReadFile(filepath.Join(path, today))
	check.Must(t, err)
	if lines := strings.Count(string(data), "\n"); lines != 1 || strings.Contains(string(data), "managedFields") ||
		strings.Contains(string(data), corev1.LastAppliedConfigAnnotation) {
		t.Errorf("%d lines, want 1 without managed fields and kubectl's annotation: %s", lines, data)
	}
	var got archive.Entry
	check.Must(t, json.Unmarshal(data, &got))
	if got.Dispatch.Kind != "Dispatch" || got.Dispatch.Status.History[0].Attempt != 3 || !got.ArchivedAt.Equal(noon) ||
		got.TrainJob.GetAnnotations()["note"] != given.TrainJob.GetAnnotations()["note"] {
		t.Errorf("the line is %s", data)
	}
	if len(given.TrainJob.GetManagedFields()) != 1 || len(given.Dispatch.ManagedFields) != 1 {
		t.Error("Keep has changed its argument")
	}
	if info, err := os.Stat(filepath.Join(path, today)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v, want that only the owner reads it", info.Mode(), err)
	}
}

// TestNamesStayInside: no name of a job or of the process leads out of the directory, nor does a link in it.
func TestNamesStayInside(t *testing.T) {
	outside, path := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	check.Must(t, os.Mkdir(path, 0o700))
	dir, err := archive.NewDir(path, "../../manager")
	check.Must(t, err)
	check.Must(t, dir.Keep(t.Context(), entry("job", noon)))
	if found := names(t, filepath.Join(path, "trainjobs-2026-11-23-..%2F..%2Fmanager.jsonl")); len(found) != 1 {
		t.Errorf("found %q", found)
	}
	check.Must(t, os.Symlink(filepath.Join(outside, "victim"), filepath.Join(path, today)))
	if err := open(t, path).Keep(t.Context(), entry("job", noon)); err == nil {
		t.Error("Keep has followed a link out of the directory")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the directory there are %v, %v", left, err)
	}
}

// TestFiles: each day has a file, a part of a line that a crash has left spoils no other line, and a file that an admin
// has moved away is not written to any more.
func TestFiles(t *testing.T) {
	path := t.TempDir()
	keep := func(dir *archive.Dir, name string, at time.Time) {
		t.Helper()
		check.Must(t, dir.Keep(t.Context(), entry(name, at)))
	}
	dir := open(t, path)
	keep(dir, "one", noon)
	keep(dir, "two", noon)
	keep(dir, "tomorrow", noon.Add(12*time.Hour))
	file, err := os.OpenFile(filepath.Join(path, today), os.O_APPEND|os.O_WRONLY, 0)
	check.Must(t, err)
	if _, err := file.WriteString(`{"trainJob":{"me`); err != nil {
		t.Fatal(err)
	}
	check.Must(t, file.Close())
	after := open(t, path)
	keep(after, "three", noon)
	check.Diff(t, []string{"one", "two", `{"trainJob":{"me`, "three"}, names(t, filepath.Join(path, today)), "file")
	check.Diff(t, []string{"tomorrow"}, names(t, filepath.Join(path, strings.Replace(today, "23", "24", 1))),
		"file of the next day")
	check.Must(t, os.Rename(filepath.Join(path, today), filepath.Join(path, "moved")))
	keep(after, "four", noon)
	check.Diff(t, []string{"four"}, names(t, filepath.Join(path, today)), "new file")
}

// TestSimultaneous: lines of several writers in this process do not mix.
func TestSimultaneous(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				check.Must(t, dir.Keep(t.Context(), entry("job", noon)))
			}
		})
	}
	all.Wait()
	found := names(t, filepath.Join(path, today))
	if len(found) != 80 || strings.Join(found, "") != strings.Repeat("job", 80) {
		t.Errorf("found %q", found)
	}
}

// TestFullDisk: what the disk does not take is not kept. The limit of the file's size stands for the disk's.
func TestFullDisk(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	check.Must(t, dir.Keep(t.Context(), entry("before", noon)))
	info, err := os.Stat(filepath.Join(path, today))
	check.Must(t, err)
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	check.Must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	full := syscall.Rlimit{Cur: uint64(info.Size()) + 20, Max: limit.Max}
	check.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	refused := dir.Keep(t.Context(), entry("refused", noon))
	check.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	if refused == nil {
		t.Error("Keep has no error for what is not on disk")
	}
	check.Must(t, dir.Keep(t.Context(), entry("after", noon)))
	found := names(t, filepath.Join(path, today))
	if len(found) != 3 || found[0] != "before" || found[2] != "after" {
		t.Errorf("found %q, want a part of a line between two whole ones", found)
	}
}

// endpoint is an HTTPS server, and a file with a token for it.
func endpoint(t *testing.T, handle http.HandlerFunc) (server *httptest.Server, tokenFile string) {
	t.Helper()
	server = httptest.NewTLSServer(handle)
	t.Cleanup(server.Close)
	tokenFile = filepath.Join(t.TempDir(), "token")
	check.Must(t, os.WriteFile(tokenFile, []byte("first\n"), 0o600))
	return server, tokenFile
}

func TestEndpoint(t *testing.T) {
	var bodies, tokens []string
	server, tokenFile := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies, tokens = append(bodies, string(body)), append(tokens, r.Method+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusAccepted)
	})
	kept, err := archive.NewEndpoint(server.URL+"/jobs", tokenFile, server.Client().Transport)
	check.Must(t, err)
	for _, token := range []string{"first", "renewed"} {
		check.Must(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
		check.Must(t, kept.Keep(t.Context(), entry("job", noon)))
	}
	check.Diff(t, []string{"POST Bearer first", "POST Bearer renewed"}, tokens, "requests")
	var got archive.Entry
	if err := json.Unmarshal([]byte(bodies[0]), &got); err != nil || got.TrainJob.GetName() != "job" {
		t.Errorf("the body is %s", bodies[0])
	}
}

// TestEndpointRefuses: whatever is not 2xx from the server itself is an error, and nobody else gets token and job.
func TestEndpointRefuses(t *testing.T) {
	stolen := 0
	thief, _ := endpoint(t, func(http.ResponseWriter, *http.Request) { stolen++ })
	server, tokenFile := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/full":
			http.Error(w, "no space left "+strings.Repeat("x", 10000), http.StatusInsufficientStorage)
		case "/moved":
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		}
	})
	for path, want := range map[string]string{"/full": "507", "/moved": "307"} {
		kept, err := archive.NewEndpoint(server.URL+path, tokenFile, server.Client().Transport)
		check.Must(t, err)
		if err := kept.Keep(t.Context(), entry("job", noon)); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%s: Keep() = %v, want %s in few words", path, err, want)
		}
	}
	unknown, err := archive.NewEndpoint(server.URL, tokenFile, nil) // The test's CA is not the system's.
	check.Must(t, err)
	if err := unknown.Keep(t.Context(), entry("job", noon)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Keep() = %v, want that it does not trust the server", err)
	}
	if stolen > 0 {
		t.Error("the job was sent where a redirect leads")
	}
}

func TestEndpointValidates(t *testing.T) {
	for _, address := range []string{"http://archive", "archive", "https://", "https://user:secret@archive", "https://a b", "file:///etc"} {
		if _, err := archive.NewEndpoint(address, "", nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("NewEndpoint(%q) = %v, want an error without the password", address, err)
		}
	}
	if _, err := archive.NewEndpoint("https://archive", "/does/not/exist", nil); err == nil {
		t.Error("a token file that is not there is valid")
	}
}
