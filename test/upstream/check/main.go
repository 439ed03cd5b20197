// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Check checks the directory of $TRAINYARD_KUBERNETES, and prints the versions of its binaries. Its argument is the path
// of test/controlplane/go.mod, or of one of test/controlplane/releases.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/trainyard/trainyard/test/upstream"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check GO.MOD")
		os.Exit(2)
	}
	dir := os.Getenv(upstream.Variable)
	release, err := upstream.Open(context.Background(), dir, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("using kube-apiserver %s and etcd %s of %s\n", release.Version("kube-apiserver"), release.Version("etcd"), dir)
}
