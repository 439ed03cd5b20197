// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expressions compiles the CEL expressions of DispatchPolicies. Compile an expression once and keep the result.
// It is a dispatch.Expression, does not change, and goroutines may share it.
//
// An expression is a bool over two variables:
//
//	worker  name, labels, kubernetesVersion
//	        allocatable, free, price     maps from resource to double; cpu in cores, memory in bytes
//	        gpus, freeGPUs               double; sums over the resources that are whole GPUs or other accelerators,
//	                                     see package accelerators
//	        nodeGroups                   list of product, resource, unit, nodes, allocatable, and free: a list of gpus,
//	                                     nodes
//	        assigned                     int; jobs that were placed there and have not ended
//	        queued                       int; assigned jobs that have no pods yet
//	job     name, namespace, labels, annotations, priority
//	        podSets                      list of name, role, count, requests, nodeSelector
//
// Placement counts free and queued. The WorkerCluster's status gives nodeGroups, which can be seconds older. Amounts
// are doubles, so that a quotient of two amounts is not cut to an integer. The operators < and > compare a double with
// an integer too. For == and arithmetic the literal must be a double: 8.0. Priority is 0 unless the caller sets it.
//
// Besides the standard functions an expression has the functions of Kubernetes' libraries that need only their
// arguments: quantities, semantic versions, regular expressions, lists, sets, strings, formats, optionals. It has no
// clock and no random numbers, so the same worker and job always give the same answer. The cost of an answer and the
// length of an expression are limited.
//
// What to watch out for: a key that a map does not have is an error, and an error rejects the worker. Check the key
// with "zone" in worker.labels, or set a default with worker.labels[?"zone"].orValue("none").
package expressions
