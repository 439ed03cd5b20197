// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// TestLogArchiveFlags: a fault of a flag of the archive names the flag, and repeats no password.
func TestLogArchiveFlags(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string // Empty: no fault.
	}{
		"None":     {},
		"Dir":      {args: []string{"--log-archive-dir=" + dir, "--log-archive-size=16Mi"}},
		"Bucket":   {args: []string{"--log-archive-url=https://s3.example.com/logs/hub-1"}},
		"Both":     {args: []string{"--log-archive-dir=" + dir, "--log-archive-url=https://s3.example.com/logs"}, want: "set one of them"},
		"NoDir":    {args: []string{"--log-archive-dir=" + dir + "/none"}, want: `--log-archive-dir is "` + dir + `/none": must be an existing directory`},
		"HTTP":     {args: []string{"--log-archive-url=http://s3.example.com/logs"}, want: `--log-archive-url is "http://s3.example.com/logs": must be a URL such as https://`},
		"NoBucket": {args: []string{"--log-archive-url=https://s3.example.com/"}, want: `--log-archive-url is "https://s3.example.com/": must name a bucket`},
		"Password": {args: []string{"--log-archive-url=https://me:secret@s3.example.com/logs"}, want: `--log-archive-url is "https://me:xxxxx@s3.example.com/logs": must be`},
		"Protocol": {args: []string{"--log-archive-url=s3://logs/hub-1"}, want: `--log-archive-url is "s3://logs/hub-1"`},
		"TooMuch":  {args: []string{"--log-archive-size=17Mi"}, want: `--log-archive-size is "17Mi": must be a quantity from 1Ki to 16Mi`},
		"TooFew":   {args: []string{"--log-archive-size=80"}, want: `--log-archive-size is "80"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions().logArchive
			flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.addFlags(flags)
			check.Must(t, flags.Parse(tc.args))
			err := o.validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the fault is %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the fault has a password: %v", err)
			}
		})
	}
}

// TestReplicasShareADirectory: what one replica keeps in a directory, another one reads. A directory that is not there any
// more is named with its flag.
func TestReplicasShareADirectory(t *testing.T) {
	o := logArchiveOptions{dir: t.TempDir(), size: "1Mi"}
	var replicas [2]*logarchive.Archive
	for i := range replicas {
		var err error
		replicas[i], err = o.newLogArchive()
		check.Must(t, err)
		check.Must(t, o.try(t.Context(), replicas[i]))
	}
	check.Must(t, replicas[0].Store.Put(t.Context(), "vision/llm/1/1/pod/node.log", []byte("epoch 1\n")))
	got, err := replicas[1].Store.Get(t.Context(), "vision/llm/1/1/pod/node.log", 1<<10)
	check.Must(t, err)
	check.Equal(t, "epoch 1\n", string(got), "log")
	names, err := replicas[1].Store.List(t.Context(), ".")
	check.Must(t, err)
	check.Diff(t, []string{"vision"}, names, "what the directory has")

	check.Must(t, os.RemoveAll(o.dir))
	if err := o.try(t.Context(), replicas[0]); err == nil || !strings.Contains(err.Error(), `--log-archive-dir is "`+o.dir+`"`) {
		t.Errorf("without the directory: %v", err)
	}
}

// TestLogArchiveAtTheStart: the log of a manager says at the start whether the bucket of --log-archive-url can be used, and
// the manager is ready in both cases.
func TestLogArchiveAtTheStart(t *testing.T) {
	w := hub(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.Header.Get("Authorization"), "Credential=trainyard/"):
			rw.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(rw, "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>")
		case !strings.HasPrefix(r.URL.Path, "/logs/"):
			rw.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(rw, "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>")
		case r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Query().Get("prefix"), "hub-1/"):
			t.Errorf("the manager has sent %s %s", r.Method, r.URL)
		default:
			_, _ = io.WriteString(rw, "<ListBucketResult><Name>logs</Name><KeyCount>0</KeyCount></ListBucketResult>")
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	trusted := filepath.Join(t.TempDir(), "ca.crt")
	check.Must(t, os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	empty, err := ports.Free()
	check.Must(t, err)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test")
	for name, tc := range map[string]struct{ url, user, trusts, want string }{
		"Works":     {url: server.URL + "/logs/hub-1", user: "trainyard", trusts: trusted, want: "The ends of logs are kept"},
		"NoBucket":  {url: server.URL + "/log/hub-1", user: "trainyard", trusts: trusted, want: "The specified bucket does not exist"},
		"NotOurs":   {url: server.URL + "/logs/hub-1", user: "somebody", trusts: trusted, want: "Access Denied"},
		"Untrusted": {url: server.URL + "/logs/hub-1", user: "trainyard", want: "certificate signed by unknown authority"},
		"Nobody":    {url: "https://" + empty + "/logs/hub-1", user: "trainyard", want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", tc.user)
			t.Setenv("SSL_CERT_FILE", tc.trusts)
			m := w.start(t, "--log-archive-url="+tc.url)
			eventually(t, "the log", func(g gomega.Gomega) { g.Expect(m.Log(t)).To(gomega.ContainSubstring(tc.want)) })
			check.Equal(t, name != "Works", strings.Contains(m.Log(t), "--log-archive-url is "), "an error names the flag")
			check.Must(t, ports.Ready(t.Context(), m.Health))
			check.Equal(t, false, strings.Contains(m.Log(t), "a-secret-of-the-test"), "the log has the secret")
		})
	}
}
