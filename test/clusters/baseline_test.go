// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestBaseline starts two clusters at the same time, with the same new baseline, and then one without CRDs.
func TestBaseline(t *testing.T) {
	bin := linkBinaries(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "crd.yaml"), []byte(widgets), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := StartAll(t.Context(), Options{Name: "one", BinDir: bin, CRDs: []string{dir}}, Options{Name: "two", BinDir: bin, CRDs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := StopAll(all...); err != nil {
			t.Error(err)
		}
	})
	identities := map[string]string{}
	for _, c := range all {
		kind := c.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
		if _, err := kind.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("cluster %q does not have the CRD: %v", c.Name, err)
		}
		namespace, err := c.kubernetes.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if other := identities[string(namespace.UID)]; other != "" {
			t.Errorf("clusters %q and %q have the same identity %s", c.Name, other, namespace.UID)
		}
		identities[string(namespace.UID)] = c.Name
		trust, err := c.kubernetes.CoreV1().ConfigMaps(metav1.NamespaceSystem).
			Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if trust.Data["client-ca-file"] != string(c.Config.CAData) {
			t.Errorf("cluster %q trusts another authority than its own", c.Name)
		}
	}
	if got := baselines(t, bin); len(got) != 2 {
		t.Errorf("two clusters with the same CRDs have the baselines %v, want one, and the one without CRDs that it begins with", got)
	}
	startCluster(t, Options{Name: "three", BinDir: bin})
	if got := baselines(t, bin); len(got) != 2 {
		t.Errorf("with a cluster without CRDs there are the baselines %v, want the same two", got)
	}
}

// linkBinaries makes a directory with the control plane, and without baselines.
func linkBinaries(t *testing.T) string {
	t.Helper()
	from, err := defaultBinDir()
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := os.Symlink(filepath.Join(from, "controlplane"), filepath.Join(to, "controlplane")); err != nil {
		t.Fatal(err)
	}
	return to
}

func baselines(t *testing.T, bin string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(bin, baselineFolder, "????????????????"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
