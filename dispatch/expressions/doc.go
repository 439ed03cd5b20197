// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expressions compiles the CEL expressions of DispatchPolicies. Compile once and keep the result, which does not change and
// may be shared; it is a dispatch.Expression.
//
// An expression is a bool over two variables:
//
//	worker  name, labels, kubernetesVersion
//	        allocatable, free, price     maps from resource to double; cpu in cores, memory in bytes
//	        gpus, freeGPUs               double; sums over the resources that are GPUs
//	        nodeGroups                   list of product, resource, nodes, allocatable, and free: a list of gpus, nodes
//	        assigned, queued             int; jobs that were placed there and have not ended, and those of them that have no pods yet
//	job     name, namespace, labels, annotations, priority
//	        podSets                      list of name, role, count, requests, nodeSelector
//
// What is free and queued is as placement counts it, and nodeGroups is as the WorkerCluster's status has it, which can be seconds
// older. Amounts are doubles, so that a quotient of two is not cut to an integer: they are less or more than an integer as one would
// expect, and for == and arithmetic the literal must be a double too, 8.0. Priority is 0 unless the caller knows better.
//
// Besides the standard functions there are those of Kubernetes' libraries that need nothing but their arguments: quantities,
// semantic versions, regular expressions, lists, sets, strings, formats, optionals. There is no clock and no randomness, so the
// same worker and job have the same answer. What an answer may cost is limited, and so is the length of an expression.
//
// What to watch out for: a key that a map does not have is an error, and so the worker is not taken. Ask with "zone" in worker.labels,
// or give another value with worker.labels[?"zone"].orValue("none").
package expressions
