// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/commands"
	"github.com/trainyard/trainyard/test/check"
)

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
		"logs job", "clusters", "explain job", "queue", "drain east", "cordon east", "forget east", "release east default/job",
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
