// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// engineWith is a container engine whose command answers kind as Docker does that has the nodes of one cluster, or none.
// The file that it returns gets a line for each call that changes something.
func engineWith(t *testing.T, clusterName string) (changes string) {
	t.Helper()
	bin := t.TempDir()
	changes = filepath.Join(bin, "changes")
	script := `#!/bin/sh
case "$1" in
-v) echo "Docker version 28.0.0, build 0000000" ;;
info) ;;
ps) case "$*" in
  *"label=io.x-k8s.kind.cluster="*) [ -z "$NODES_OF" ] || echo "$NODES_OF-control-plane" ;;
  *) [ -z "$NODES_OF" ] || echo "$NODES_OF" ;;
  esac ;;
*) echo "$*" >>"$CHANGES" ;;
esac
`
	check.Must(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o700))
	t.Setenv("TRAINYARD_CLUSTERS", "kind")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("NODES_OF", clusterName)
	t.Setenv("CHANGES", changes)
	return changes
}

// Clusters of kind that end at the same time leave the user's kubeconfig alone. Here somebody else has its lock, and it
// has an entry of the name that kind gives to one of the clusters.
func TestKindLeavesTheUsersKubeconfig(t *testing.T) {
	engineWith(t, "")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	const entry = "apiVersion: v1\nkind: Config\ncontexts: [{name: kind-trainyard-hub, context: {cluster: mine, user: mine}}]\n"
	mine := filepath.Join(home, ".kube", "config")
	for path, text := range map[string]string{mine: entry, mine + ".lock": ""} {
		check.Must(t, writeFile(path, []byte(text)))
	}
	var all []*Cluster
	for _, name := range []string{"hub", "a10", "h100"} {
		dir := t.TempDir()
		k, err := newKindCluster(Options{Name: name, Dir: dir})
		check.Must(t, err)
		// The engine has no nodes, so kind cannot start any. What it has written stays.
		if err := k.startControlPlane(t.Context(), filepath.Join(dir, "kubeconfig")); err == nil {
			t.Fatal("a cluster of kind has started without an engine")
		}
		all = append(all, &Cluster{Name: name, Dir: dir, backend: k})
	}
	if err := StopAll(all...); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != entry {
		t.Errorf("the user's kubeconfig is now %q (%v), want %q", got, err, entry)
	}
}

// A cluster of kind that is there already belongs to somebody: the start says so, and does not delete it.
func TestKindClusterIsThereAlready(t *testing.T) {
	changes := engineWith(t, "trainyard-hub")
	t.Setenv("HOME", t.TempDir())
	_, err := Start(t.Context(), Options{Name: "hub", Dir: t.TempDir()})
	const want = `kind cluster "trainyard-hub" is there already`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start of a second cluster: %v, want %q", err, want)
	}
	if got, err := os.ReadFile(changes); err == nil {
		t.Errorf("the start has called the engine:\n%s", got)
	}
}
