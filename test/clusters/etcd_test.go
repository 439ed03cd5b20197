// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// TestWrittenKeysAreServed: what is copied below the API server is served by it, from more than one transaction.
func TestWrittenKeysAreServed(t *testing.T) {
	c := sharedCluster(t)
	const template = "kube-public"
	all, err := c.Keys(t.Context(), "/registry/namespaces/"+template)
	check.Must(t, err)
	if len(all) != 1 {
		t.Fatalf("%d keys of the namespace %s, want 1", len(all), template)
	}
	var copies []KeyValue
	for i := range keysOfTransaction + 1 {
		name := fmt.Sprintf("etcd-cop%03d", i) // As long as the template's: a namespace is protobuf, with lengths in it.
		copies = append(copies, KeyValue{
			Key: "/registry/namespaces/" + name, Value: bytes.ReplaceAll(all[0].Value, []byte(template), []byte(name)),
		})
	}
	check.Must(t, c.WriteKeys(t.Context(), copies))
	for _, name := range []string{"etcd-cop000", fmt.Sprintf("etcd-cop%03d", keysOfTransaction)} {
		namespace, err := c.kubernetes.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		check.Must(t, err)
		if namespace.Name != name {
			t.Errorf("the namespace at the key of %s is called %s", name, namespace.Name)
		}
	}
}
