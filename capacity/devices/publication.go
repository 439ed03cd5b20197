// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// publication is a ResourceSlice as it counts: with the taints of rules, and with the devices that exactly one node
// reaches. What several nodes reach cannot be a number of each of them.
type publication struct {
	slice *resourceapi.ResourceSlice
	// nodes are the nodes of its devices.
	nodes []string
	// lacks says whether devices are left out.
	lacks bool
}

// SetSlice takes a ResourceSlice. The Counter keeps it: do not change it.
func (c *Counter) SetSlice(slice *resourceapi.ResourceSlice) {
	c.DeleteSlice(slice.Name)
	c.slices[slice.Name] = slice
	if selects(slice) {
		c.selecting[slice.Name] = slice
	}
	c.publish(slice)
}

// DeleteSlice takes the deletion of a ResourceSlice.
func (c *Counter) DeleteSlice(name string) {
	if slice := c.slices[name]; slice != nil {
		c.withdraw(slice)
		delete(c.slices, name)
		delete(c.selecting, name)
	}
}

// SetNode takes a node of the worker, with its labels. The Counter keeps them: do not change them.
func (c *Counter) SetNode(name string, labels map[string]string) {
	c.changeNode(name, labels, true)
}

// DeleteNode takes the deletion of a node.
func (c *Counter) DeleteNode(name string) { c.changeNode(name, nil, false) }

// changeNode looks anew for the node of each slice that selects the node before or after the change.
func (c *Counter) changeNode(name string, labels map[string]string, exists bool) {
	before, existed := c.labels[name]
	var changed []*resourceapi.ResourceSlice
	for _, slice := range c.selecting {
		reaches := reach(slice)
		if (existed && reaches(name, before)) != (exists && reaches(name, labels)) {
			changed = append(changed, slice)
		}
	}
	for _, slice := range changed {
		c.withdraw(slice)
	}
	if delete(c.labels, name); exists {
		c.labels[name] = labels
	}
	for _, slice := range changed {
		c.publish(slice)
	}
}

// publish adds a slice to its pool, and its pool to its nodes.
func (c *Counter) publish(slice *resourceapi.ResourceSlice) {
	id, made := poolOf(slice), publicationOf(slice, c.rules, c.labels)
	p := c.pool(id)
	p.slices[slice.Name] = made
	if made.lacks {
		c.reached[id]++
	}
	for _, name := range made.nodes {
		if c.nodes[name] == nil {
			c.nodes[name] = &node{pools: map[poolID]bool{}}
		}
		c.nodes[name].pools[id] = true
	}
	c.published(p)
}

// withdraw takes back what publish has done.
func (c *Counter) withdraw(slice *resourceapi.ResourceSlice) {
	id := poolOf(slice)
	p := c.pools[id]
	c.published(p)
	made := p.slices[slice.Name]
	delete(p.slices, slice.Name)
	if made.lacks {
		if c.reached[id]--; c.reached[id] == 0 {
			delete(c.reached, id)
		}
	}
	left := p.nodes()
	for _, name := range made.nodes {
		if left[name] {
			continue
		}
		delete(c.nodes[name].pools, id)
		if len(c.nodes[name].pools) == 0 {
			delete(c.nodes, name)
		}
	}
	c.forget(id)
}

// published makes the next Count count the nodes of a pool whose slices have changed.
func (c *Counter) published(p *pool) {
	for name := range p.nodes() {
		if n := c.nodes[name]; n != nil {
			n.forget()
		}
		c.changed[name] = true
	}
}

// nodes are the names of the nodes to which devices of the pool belong.
func (p *pool) nodes() map[string]bool {
	names := map[string]bool{}
	for _, made := range p.slices {
		for _, name := range made.nodes {
			names[name] = true
		}
	}
	return names
}

// publicationOf says what of a slice counts, and where, on nodes with these labels.
func publicationOf(slice *resourceapi.ResourceSlice, rules map[string]*rule, nodes map[string]map[string]string) *publication {
	made := &publication{slice: tainted(slice, rules)}
	devices := made.slice.Spec.Devices
	switch only := onlyNode(slice, nodes); {
	case ptr.Deref(slice.Spec.PerDeviceNodeSelection, false):
		devices = slices.DeleteFunc(slices.Clone(devices), func(d resourceapi.Device) bool { return d.NodeName == nil })
		for i := range devices {
			if !slices.Contains(made.nodes, *devices[i].NodeName) {
				made.nodes = append(made.nodes, *devices[i].NodeName)
			}
		}
	case only == "":
		devices = nil
	default:
		made.nodes = []string{only}
	}
	if made.lacks = len(devices) < len(slice.Spec.Devices); made.lacks { // The pool needs the slice to be complete.
		shallow := *made.slice
		shallow.Spec.Devices = devices
		made.slice = &shallow
	}
	return made
}

// onlyNode returns the node that alone reaches the devices of a slice, of the nodes with these labels, or nothing.
func onlyNode(slice *resourceapi.ResourceSlice, nodes map[string]map[string]string) (only string) {
	if slice.Spec.NodeName != nil {
		return *slice.Spec.NodeName
	}
	reaches := reach(slice)
	for name, labels := range nodes {
		if !reaches(name, labels) {
			continue
		}
		if only != "" {
			return ""
		}
		only = name
	}
	return only
}

// selects says whether the nodes of a slice depend on the nodes that there are.
func selects(slice *resourceapi.ResourceSlice) bool {
	return slice.Spec.NodeSelector != nil || ptr.Deref(slice.Spec.AllNodes, false)
}

// reach returns a function that says whether a node reaches all devices of a slice by its selector.
func reach(slice *resourceapi.ResourceSlice) func(node string, labels map[string]string) bool {
	if ptr.Deref(slice.Spec.AllNodes, false) {
		return func(string, map[string]string) bool { return true }
	}
	if slice.Spec.NodeSelector == nil {
		return func(string, map[string]string) bool { return false }
	}
	selector, err := nodeaffinity.NewNodeSelector(slice.Spec.NodeSelector)
	if err != nil { // The worker's API server has let it pass. Nobody knows what it means there.
		return func(string, map[string]string) bool { return false }
	}
	return func(node string, labels map[string]string) bool {
		return selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}})
	}
}
