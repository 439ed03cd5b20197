// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/commands"
	"github.com/trainyard/trainyard/test/check"
)

// unreachable is a cluster that no command reaches: what a command says of its arguments comes first.
const unreachable = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
users: [{name: c, user: {token: t}}]
current-context: c
`

// Each command that takes a name takes TYPE/NAME too, and no other type.
func TestTypesOfArguments(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(kubeconfig, []byte(unreachable), 0o600))
	const worker, job = "worker", "job"
	names := map[string][]string{
		worker: {"east", "workercluster/east", "workerclusters/east", "wc/east", "workercluster.trainyard.dev/east", "WorkerCluster/east",
			"workerclusters.v1alpha1.trainyard.dev/east"},
		job: {"llama", "trainjob/llama", "trainjobs/llama", "trainjob.trainer.kubeflow.org/llama", "TrainJob/llama",
			"trainjobs.v1alpha1.trainer.kubeflow.org/llama", "dispatch/llama", "dispatches.trainyard.dev/llama"},
	}
	wrong := map[string][]string{
		worker: {"pod/east", "trainjob/east", "workercluster/", "/east", "workercluster/a/b", "workercluster.example.com/east"},
		job:    {"pod/llama", "wc/llama", "trainjob/", "/llama", "trainjob/a/b", "trainjob.example.com/llama"},
	}
	for command, takes := range map[string]string{
		"clusters": worker, "cordon": worker, "uncordon": worker, "drain": worker, "forget": worker, "adopt": worker, "release": worker,
		"leave": worker, "join --context c": worker, "explain": job, "logs": job, "trace": job, "retry": job, "adopt east": job, "release east": job,
	} {
		t.Run(command, func(t *testing.T) {
			says := func(argument string) string {
				var out bytes.Buffer
				args := append(strings.Fields(command), argument, "--kubeconfig", kubeconfig)
				commands.Main(t.Context(), genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out}, "kubectl-trainyard", args)
				return out.String()
			}
			for _, argument := range names[takes] {
				if plain := !strings.Contains(argument, "."); takes == job && plain && strings.Contains(command, "east") {
					continue // Before the slash is a namespace.
				}
				if text := says(argument); !strings.Contains(text, "127.0.0.1:1") {
					t.Errorf("%s %s does not ask the cluster: %s", command, argument, text)
				}
			}
			for _, argument := range wrong[takes] {
				if text := says(argument); strings.Contains(text, "127.0.0.1:1") && !strings.Contains(command, "east") {
					t.Errorf("%s %s asks the cluster: %s", command, argument, text)
				}
			}
		})
	}
	for _, argument := range []string{"trainjob.example.com/llama", "pod.v1/llama"} {
		var out bytes.Buffer
		args := []string{"adopt", "east", argument, "--kubeconfig", kubeconfig}
		commands.Main(t.Context(), genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out}, "kubectl-trainyard", args)
		if want := `"` + argument + `" does not name a TrainJob: want NAME or trainjob/NAME`; !strings.Contains(out.String(), want) {
			t.Errorf("adopt east %s says %q, want %q", argument, out.String(), want)
		}
	}
}

// TestWordsOfServersAreShown checks that no command sends the control characters in an API server's words to the
// terminal. They could overwrite what the command has found out. All commands have the same streams.
func TestWordsOfServersAreShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no\u001b[2J\u009b1A\rok"}`)
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, clientcmd.WriteToFile(*config, path))
	for _, command := range []string{
		"logs job", "retry job", "clusters", "board --open=false", "runtimes", "explain job", "queue", "drain east", "cordon east", "forget east", "release east default/job",
		"adopt east default/job",
	} {
		t.Run(command, func(t *testing.T) {
			in, out, errOut := strings.NewReader(""), &strings.Builder{}, &strings.Builder{}
			streams := genericiooptions.IOStreams{In: in, Out: out, ErrOut: errOut}
			args := append(strings.Fields(command), "--kubeconfig", path)
			if code := commands.Main(t.Context(), streams, "kubectl-trainyard", args); code == 0 {
				t.Error("the command has ended well")
			}
			printed := out.String() + errOut.String()
			if strings.ContainsAny(printed, "\x1b\u009b\r") || !strings.Contains(printed, `no\u001b[2J`) {
				t.Errorf("printed %q", printed)
			}
		})
	}
}

// A command that does not exist leads to those that may be meant.
func TestUnknownCommand(t *testing.T) {
	for argument, want := range map[string]string{
		"lgos":      "Do you mean logs?",
		"list":      "Do you mean clusters, queue?",
		"trainjobs": "Do you mean queue?",
		"east":      "See 'kubectl trainyard --help'",
	} {
		var out bytes.Buffer
		code := commands.Main(t.Context(), genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out}, "kubectl-trainyard", []string{argument})
		check.Equal(t, 1, code, "exit code of %s", argument)
		check.Equal(t, fmt.Sprintf("error: unknown command %q for \"kubectl trainyard\"\n%s\n", argument, want), out.String(), "what %s prints", argument)
	}
}
