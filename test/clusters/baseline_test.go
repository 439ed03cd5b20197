// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/test/check"
)

// TestBaseline starts two clusters at the same time, with the same new baseline, and then one without CRDs.
func TestBaseline(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "crd.yaml"), []byte(widgets), 0o600))
	all, err := StartAll(t.Context(), Options{Name: "one", CRDs: []string{dir}}, Options{Name: "two", CRDs: []string{dir}})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, StopAll(all...)) })
	identities := map[string]string{}
	for _, c := range all {
		kind := c.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
		if _, err := kind.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("cluster %q does not have the CRD: %v", c.Name, err)
		}
		namespace, err := c.kubernetes.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		check.Must(t, err)
		if other := identities[string(namespace.UID)]; other != "" {
			t.Errorf("clusters %q and %q have the same identity %s", c.Name, other, namespace.UID)
		}
		identities[string(namespace.UID)] = c.Name
		trust, err := c.kubernetes.CoreV1().ConfigMaps(metav1.NamespaceSystem).
			Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		check.Must(t, err)
		check.Equal(t, string(c.Config.CAData), trust.Data["client-ca-file"],
			"cluster %q trusts another authority than its own", c.Name)
	}
	if got := baselines(t); len(got) != 2 {
		t.Errorf("two clusters with the same CRDs have the baselines %v, want one, and the one without CRDs that it begins with", got)
	}
	startCluster(t, Options{Name: "three"})
	got := baselines(t)
	check.Equal(t, 2, len(got), "with a cluster without CRDs there are the baselines %v, want the same two", got)
	old := time.Now().Add(-baselineLife)
	check.Must(t, os.Chtimes(got[0], old, old))
	check.Must(t, removeOld(filepath.Dir(got[0])))
	if left := baselines(t); len(left) != 1 || left[0] != got[1] {
		t.Errorf("when %s is old, the baselines %v are left, want only the other", got[0], left)
	}
}

func baselines(t *testing.T) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	check.Must(t, err)
	found, err := filepath.Glob(filepath.Join(cache, baselineFolder, "????????????????"))
	check.Must(t, err)
	return found
}
