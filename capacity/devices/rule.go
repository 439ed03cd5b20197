// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rule is a DeviceTaintRule: an admin, or a controller, taints devices that a driver has published without that taint.
// The scheduler adds the taint to the devices before it allocates them, and so does the Counter.
type rule struct {
	// selects is false if the rule taints no devices.
	selects bool
	// driver, pool and device are what a device must have. nil: anything.
	driver, pool, device *string
	taint                resourceapi.DeviceTaint
	// fault says why nobody knows which devices the rule taints.
	fault string
}

// SetRule takes a DeviceTaintRule, of any version of its API.
func (c *Counter) SetRule(object *unstructured.Unstructured) {
	set := ruleOf(object)
	before := c.rules[object.GetName()]
	if before != nil && reflect.DeepEqual(before, set) { // Its status says how far an eviction is.
		return
	}
	c.rules[object.GetName()] = set
	c.ruled(before, set)
}

// DeleteRule takes the deletion of a DeviceTaintRule.
func (c *Counter) DeleteRule(name string) {
	if before := c.rules[name]; before != nil {
		delete(c.rules, name)
		c.ruled(before)
	}
}

// SetUnread says why the Counter gets none of a resource although the worker may have some, as one of the Faults. An empty
// text takes that back.
func (c *Counter) SetUnread(resource, why string) {
	if delete(c.unread, resource); why != "" {
		c.unread[resource] = why
	}
}

// ruled makes the next Count count the nodes with devices to which rules apply that have changed.
func (c *Counter) ruled(changed ...*rule) {
	for _, slice := range c.slices {
		if slices.ContainsFunc(changed, func(r *rule) bool { return r != nil && r.matches(slice) }) {
			c.withdraw(slice)
			c.publish(slice)
		}
	}
}

// tainted returns a slice with the taints of rules.
func tainted(slice *resourceapi.ResourceSlice, rules map[string]*rule) *resourceapi.ResourceSlice {
	tainted := slice
	for _, r := range rules {
		if !r.matches(slice) {
			continue
		}
		if tainted == slice { // What the API server has published stays as it is.
			shallow := *slice
			shallow.Spec.Devices = slices.Clone(slice.Spec.Devices)
			tainted = &shallow
		}
		for i := range tainted.Spec.Devices {
			if device := &tainted.Spec.Devices[i]; r.device == nil || *r.device == device.Name {
				device.Taints = append(slices.Clip(device.Taints), r.taint)
			}
		}
	}
	return tainted
}

// matches says whether a rule taints devices of a slice.
func (r *rule) matches(slice *resourceapi.ResourceSlice) bool {
	has := func(device resourceapi.Device) bool { return device.Name == *r.device }
	return r.selects && (r.driver == nil || *r.driver == slice.Spec.Driver) &&
		(r.pool == nil || *r.pool == slice.Spec.Pool.Name) &&
		(r.device == nil || slices.ContainsFunc(slice.Spec.Devices, has))
}

// ruleOf reads what all versions of the API have. Early ones had other selectors, and later ones may have: who left them
// out would taint too much. A rule without a selector taints none, but all before Kubernetes 1.37, which is the first to
// serve v1: the scheduler of 1.36 does not do what the documentation of its API says.
func ruleOf(object *unstructured.Unstructured) *rule {
	spec, _ := object.Object["spec"].(map[string]any)
	var read resourcebeta.DeviceTaintRuleSpec
	selector, selects := spec["deviceSelector"].(map[string]any)
	read.DeviceSelector = &resourcebeta.DeviceTaintSelector{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(selector, read.DeviceSelector, true)
	taint, _ := spec["taint"].(map[string]any)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(taint, &read.Taint)
	}
	if err != nil {
		return &rule{fault: fmt.Sprintf("the DeviceTaintRule %s is not applied: %v", object.GetName(), err)}
	}
	return &rule{
		selects: selects || object.GetAPIVersion() != resourceapi.SchemeGroupVersion.String(),
		driver:  read.DeviceSelector.Driver, pool: read.DeviceSelector.Pool, device: read.DeviceSelector.Device,
		taint: resourceapi.DeviceTaint{Key: read.Taint.Key, Value: read.Taint.Value, Effect: resourceapi.DeviceTaintEffect(read.Taint.Effect)},
	}
}
