// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

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
		"leave": worker, "join --context c": worker, "explain": job, "logs": job, "adopt east": job, "release east": job,
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
