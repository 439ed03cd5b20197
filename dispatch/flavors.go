// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2" //nolint:depguard // Only for the type of an argument of Toleration.ToleratesTaint; nothing is logged.

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
)

// assignFlavors chooses the flavors of a ClusterQueue for all PodSets, one after another, as Kueue does: of each
// resource group the first flavor that takes the pods and has enough available. All pods of a PodSet get the same
// flavor. Kueue reserves the quota of initializers and of the other pods at the same time. assignFlavors returns what
// the PodSets take, or the first Shortfall.
//
// With anyway, a PodSet that no flavor has enough for takes the flavor that is nearest to having enough.
func assignFlavors(queue quota.ClusterQueue, podSets []v1alpha1.PodSet, anyway bool) (quota.Amounts, *Shortfall) {
	a := &assignment{queue: queue, taken: quota.Amounts{}, several: len(podSets) > 1}
	for i := range podSets {
		set := &podSets[i]
		if set.Count <= 0 {
			continue
		}
		if lack := a.add(set, anyway); lack != "" && !anyway {
			if a.several {
				lack = set.Name + ": " + lack
			}
			return nil, &Shortfall{PodSet: set.Name, Message: Cut(lack)}
		}
	}
	return a.taken, nil
}

// assignment is the flavors of a job while they are chosen.
type assignment struct {
	queue   quota.ClusterQueue
	taken   quota.Amounts
	several bool
}

// add chooses the flavors of one PodSet. It returns what is lacking, or "".
func (a *assignment) add(set *v1alpha1.PodSet, anyway bool) string {
	requests := charged(set, a.queue.Basis())
	for name, amount := range requests {
		requests[name] = mulUpTo(max(amount, 0), int64(set.Count))
	}
	requests[corev1.ResourcePods] = int64(set.Count)
	covered := map[corev1.ResourceName]bool{corev1.ResourcePods: true} // Only a queue with quota of pods counts them.
	taken := quota.Amounts{}
	for _, group := range a.queue.Groups() {
		wanted := Resources{}
		for _, name := range group.Resources {
			covered[name] = true
			if amount, has := requests[name]; has {
				wanted[name] = amount
			}
		}
		if len(wanted) == 0 {
			continue
		}
		flavor, lack := a.choose(set, group.Flavors, wanted, anyway)
		if flavor == "" {
			return lack
		}
		for name, amount := range wanted {
			taken[quota.Resource{Flavor: flavor, Name: name}] += amount
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if requests[name] > 0 && !covered[name] && !anyway {
			return fmt.Sprintf("ClusterQueue %s has no quota of %s, which the job requests", a.queue.Name(), name)
		}
	}
	for r, amount := range taken {
		a.taken[r] = addUpTo(a.taken[r], amount)
	}
	return ""
}

// choose returns the flavor of a resource group for a PodSet, or "" and what is lacking. Without anyway the flavor has
// enough.
func (a *assignment) choose(set *v1alpha1.PodSet, flavors []v1alpha1.KueueFlavorQuotas, wanted Resources, anyway bool) (flavor, lack string) {
	var nearest scarcity
	var refusals []string
	for i := range flavors {
		name := flavors[i].Name
		if why := refuses(a.queue.Flavor(name), set); why != "" {
			refusals = append(refusals, "flavor "+name+" "+why)
			continue
		}
		s := a.scarcest(name, wanted)
		if s.need <= s.available {
			return name, ""
		}
		if nearest.flavor == "" || s.isNearer(nearest) {
			nearest = s
		}
	}
	switch {
	case nearest.flavor == "" && len(refusals) == 0:
		return "", fmt.Sprintf("ClusterQueue %s has no flavor of %s", a.queue.Name(), namesOf(wanted)[0])
	case nearest.flavor == "":
		return "", fmt.Sprintf("no flavor of ClusterQueue %s takes its pods: %s", a.queue.Name(), list(refusals, "; "))
	case anyway:
		return nearest.flavor, ""
	}
	return "", a.message(nearest)
}

// scarcity is the resource that a flavor lacks most, in relation to what is needed.
type scarcity struct {
	flavor   string
	resource corev1.ResourceName
	// need includes what earlier PodSets take of the flavor. most is what there is if nothing is reserved.
	need, available, most int64
}

// scarcest returns the wanted resource of which the flavor has the smallest part available.
func (a *assignment) scarcest(flavor string, wanted Resources) scarcity {
	var scarcest scarcity
	for _, name := range namesOf(wanted) {
		r := quota.Resource{Flavor: flavor, Name: name}
		s := scarcity{
			flavor: flavor, resource: name, need: addUpTo(a.taken[r], wanted[name]), available: a.queue.Available(r), most: a.queue.Most(r),
		}
		if scarcest.flavor == "" || s.part() < scarcest.part() {
			scarcest = s
		}
	}
	return scarcest
}

// part is how much of the need is available, at least 1 if it is enough.
func (s scarcity) part() float64 { return (float64(s.available) + 1) / (float64(s.need) + 1) }

// isNearer says whether this flavor is nearer to having enough than another flavor.
func (s scarcity) isNearer(other scarcity) bool {
	if possible := s.need <= s.most; possible != (other.need <= other.most) {
		return possible
	}
	return s.part() > other.part()
}

// message says what the flavor lacks.
func (a *assignment) message(s scarcity) string {
	message := fmt.Sprintf("ClusterQueue %s has %s of the %s that the job needs, flavor %s", a.queue.Name(),
		formatAmount(s.resource, max(s.available, 0)), format(s.resource, s.need), s.flavor)
	if s.need > s.most {
		message += fmt.Sprintf("; it never has more than %s", formatAmount(s.resource, max(s.most, 0)))
	}
	return message
}

func namesOf(resources Resources) []corev1.ResourceName { return slices.Sorted(maps.Keys(resources)) }

// refuses says why a flavor does not take the pods of a PodSet, or "". Of node selector and affinity, only labels that
// the flavor has count.
func refuses(flavor *v1alpha1.KueueFlavor, set *v1alpha1.PodSet) string {
	if flavor == nil {
		return "does not exist"
	}
	for i := range flavor.Taints {
		taint := &flavor.Taints[i]
		tolerates := func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, taint, true) }
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(set.Tolerations, tolerates) &&
			!slices.ContainsFunc(flavor.Tolerations, tolerates) {
			return "has taint " + taint.ToString()
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set.NodeSelector)) {
		if value, has := flavor.Labels[key]; has && value != set.NodeSelector[key] {
			return fmt.Sprintf("has label %s=%s", key, value)
		}
	}
	affinity := about(set.NodeAffinity, flavor.Labels)
	if affinity == nil {
		return ""
	}
	probe := &corev1.Node{}
	probe.Labels = flavor.Labels
	if matches, err := nodeaffinity.NewLazyErrorNodeSelector(affinity).Match(probe); err != nil || !matches {
		return "does not match its nodeAffinity"
	}
	return ""
}

// about returns the part of a node affinity that is about some labels, nil if it excludes nothing.
func about(affinity *corev1.NodeSelector, labels map[string]string) *corev1.NodeSelector {
	if affinity == nil {
		return nil
	}
	part := &corev1.NodeSelector{}
	for _, term := range affinity.NodeSelectorTerms {
		var expressions []corev1.NodeSelectorRequirement
		for _, e := range term.MatchExpressions {
			if _, has := labels[e.Key]; has {
				expressions = append(expressions, e)
			}
		}
		if len(expressions) == 0 {
			return nil // One of the terms is true for every node of the flavor.
		}
		part.NodeSelectorTerms = append(part.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: expressions})
	}
	if len(part.NodeSelectorTerms) == 0 {
		return nil
	}
	return part
}

// fitsQuota says whether there is quota for the gang. Without a LocalQueue it needs none.
func (g *gang) fitsQuota(n *Nodes) bool { return g.lackQuota(n) == nil }

// lackQuota says what quota the gang lacks, or nil.
func (g *gang) lackQuota(n *Nodes) *Shortfall {
	q := n.queued()
	switch {
	case q == nil:
		return nil
	case q.problem != "":
		return &Shortfall{Message: Cut(q.problem)}
	}
	_, lack := assignFlavors(q.queue, g.podSets, false)
	return lack
}
