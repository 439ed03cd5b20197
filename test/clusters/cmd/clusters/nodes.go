// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/test/clusters"
)

// parseNodes returns the shapes of the nodes by cluster.
func parseNodes(flags []string) (map[string][]clusters.NodeShape, error) {
	all := map[string][]clusters.NodeShape{}
	for _, flag := range flags {
		cluster, shape, err := parseNode(flag)
		if err != nil {
			return nil, fmt.Errorf("--nodes %q: %w", flag, err)
		}
		all[cluster] = append(all[cluster], shape)
	}
	return all, nil
}

func parseNode(flag string) (cluster string, shape clusters.NodeShape, err error) {
	cluster, rest, ok := strings.Cut(flag, "=")
	count, resources, ok2 := strings.Cut(rest, "x")
	if !ok || !ok2 {
		return "", shape, fmt.Errorf("want NAME=COUNTxRESOURCE=AMOUNT[,RESOURCE=AMOUNT...]")
	}
	if shape.Count, err = strconv.Atoi(count); err != nil || shape.Count < 1 {
		return "", shape, fmt.Errorf("count %q is not a positive number", count)
	}
	shape.Capacity = corev1.ResourceList{}
	for pair := range strings.SplitSeq(resources, ",") {
		name, amount, ok := strings.Cut(pair, "=")
		if !ok {
			return "", shape, fmt.Errorf("%q is not RESOURCE=AMOUNT", pair)
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return "", shape, fmt.Errorf("amount of %s: %w", name, err)
		}
		shape.Capacity[corev1.ResourceName(name)] = quantity
	}
	return cluster, shape, nil
}
