// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

// The variables of an expression.
const (
	workerVariable = "worker"
	jobVariable    = "job"
)

// The types of the variables. CEL needs the limits of maps and lists to estimate costs before it runs an expression.
// Nothing here uses estimates: the real cost counts.
var (
	texts   = apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, 1024)
	amounts = apiservercel.NewMapType(apiservercel.StringType, apiservercel.DoubleType, 1024)

	freeNodesType = object("trainyard.FreeNodes", map[string]*apiservercel.DeclType{
		"gpus": apiservercel.IntType, "nodes": apiservercel.IntType,
	})
	nodeGroupType = object("trainyard.NodeGroup", map[string]*apiservercel.DeclType{
		"product": apiservercel.StringType, "resource": apiservercel.StringType, "unit": apiservercel.StringType,
		"nodes":       apiservercel.IntType,
		"allocatable": amounts, "free": apiservercel.NewListType(freeNodesType, 64),
	})
	workerType = object("trainyard.Worker", map[string]*apiservercel.DeclType{
		"name": apiservercel.StringType, "labels": texts, "kubernetesVersion": apiservercel.StringType,
		"price": amounts, "allocatable": amounts, "free": amounts,
		"gpus": apiservercel.DoubleType, "freeGPUs": apiservercel.DoubleType,
		"nodeGroups": apiservercel.NewListType(nodeGroupType, 64),
		"assigned":   apiservercel.IntType, "queued": apiservercel.IntType,
	})
	podSetType = object("trainyard.PodSet", map[string]*apiservercel.DeclType{
		"name": apiservercel.StringType, "role": apiservercel.StringType, "count": apiservercel.IntType,
		"requests": amounts, "nodeSelector": texts,
	})
	jobType = object("trainyard.Job", map[string]*apiservercel.DeclType{
		"name": apiservercel.StringType, "namespace": apiservercel.StringType, "labels": texts, "annotations": texts,
		"priority": apiservercel.IntType, "podSets": apiservercel.NewListType(podSetType, 64),
	})
)

func object(name string, types map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	fields := make(map[string]*apiservercel.DeclField, len(types))
	for field, t := range types {
		fields[field] = apiservercel.NewDeclField(field, t, true, nil, nil)
	}
	return apiservercel.NewObjectType(name, fields)
}

func workerValue(w *dispatch.Worker, table accelerators.Table) map[string]any {
	free := make(map[string]float64, len(w.Allocatable))
	var gpus, freeGPUs float64
	allocatable, present := make(map[string]float64, len(w.Allocatable)), w.Nodes.Present()
	for name, amount := range w.Allocatable {
		if v1alpha1.IsDeviceClaim(name) { // No policy knows its name.
			continue
		}
		allocatable[string(name)] = value(name, amount)
		free[string(name)] = value(name, present.Free(name))
		if accelerators.UnitIn(table, name, w.Allocatable) == accelerators.Device {
			gpus += allocatable[string(name)]
			freeGPUs += free[string(name)]
		}
	}
	price := make(map[string]float64, len(w.Price))
	for name, p := range w.Price {
		price[string(name)] = p
	}
	return map[string]any{
		"name": string(w.Name), "labels": w.Labels, "kubernetesVersion": w.KubernetesVersion,
		"price": price, "allocatable": allocatable, "free": free, "gpus": gpus, "freeGPUs": freeGPUs,
		"nodeGroups": nodeGroups(w.NodeGroups), "assigned": int64(w.Assigned), "queued": int64(w.Queued),
	}
}

func nodeGroups(groups []v1alpha1.NodeGroup) []any {
	values := make([]any, len(groups))
	for i := range groups {
		g := &groups[i]
		free := make([]any, len(g.Free))
		for j, f := range g.Free {
			free[j] = map[string]any{"gpus": f.GPUs, "nodes": int64(f.Nodes)}
		}
		values[i] = map[string]any{
			"product": g.Product, "resource": string(g.Resource), "unit": g.Unit, "nodes": int64(g.Nodes),
			"allocatable": quantities(g.Allocatable), "free": free,
		}
	}
	return values
}

func jobValue(job *dispatch.Job, field string) any {
	switch field {
	case "name":
		return job.Name
	case "namespace":
		return job.Namespace
	case "labels":
		return job.Labels
	case "annotations":
		return job.Annotations
	case "priority":
		return int64(job.Priority)
	case "podSets":
		values := make([]any, len(job.PodSets))
		for i := range job.PodSets {
			p := &job.PodSets[i]
			values[i] = map[string]any{
				"name": p.Name, "role": string(p.Role), "count": int64(p.Count),
				"requests": quantities(p.Requests), "nodeSelector": p.NodeSelector,
			}
		}
		return values
	}
	return nil
}

func quantities(list corev1.ResourceList) map[string]float64 {
	values := make(map[string]float64, len(list))
	for name, quantity := range list {
		if !v1alpha1.IsDeviceClaim(name) { // As in workerValue: a request has its amount on each worker.
			values[string(name)] = number(quantity)
		}
	}
	return values
}

func number(quantity resource.Quantity) float64 { return quantity.AsApproximateFloat64() }

// value converts an amount of package dispatch to the unit that people use.
func value(name corev1.ResourceName, amount int64) float64 {
	if name == corev1.ResourceCPU {
		return float64(amount) / 1000
	}
	return float64(amount)
}
