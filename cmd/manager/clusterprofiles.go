// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/controllers/hub/clusterprofile"
)

// clusterProfileOptions say which ClusterProfiles become WorkerClusters.
type clusterProfileOptions struct {
	// namespace is empty if no ClusterProfile becomes one.
	namespace  string
	selector   string
	properties []string
}

func (o *clusterProfileOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.namespace, "cluster-profiles", o.namespace,
		"Make a WorkerCluster of each ClusterProfile (multicluster.x-k8s.io) in this `namespace` of the hub. It takes the "+
			"rights of config/cluster-profiles. Whoever may write ClusterProfiles there decides which workers there are. "+
			"Empty: of none.")
	fs.StringVar(&o.selector, "cluster-profile-selector", o.selector,
		"Label selector of the ClusterProfiles for --cluster-profiles. Empty: all.")
	fs.StringSliceVar(&o.properties, "cluster-profile-properties", o.properties,
		"Properties of a ClusterProfile that become labels of its WorkerCluster, besides its labels. A name that ends in * "+
			"stands for all names that begin so.")
}

func (o *clusterProfileOptions) validate() error {
	var faults *multierror.Error
	if o.namespace == "" {
		if o.selector != "" || len(o.properties) > 0 {
			return errors.New("--cluster-profile-selector and --cluster-profile-properties need --cluster-profiles")
		}
		return nil
	}
	if messages := validation.IsDNS1123Label(o.namespace); len(messages) > 0 {
		faults = multierror.Append(faults, fmt.Errorf("--cluster-profiles is %q: %s", o.namespace, messages[0]))
	}
	if _, err := labels.Parse(o.selector); err != nil {
		faults = multierror.Append(faults, fmt.Errorf("--cluster-profile-selector is %q: %w", o.selector, err))
	}
	if slices.Contains(o.properties, "") {
		faults = multierror.Append(faults, errors.New("--cluster-profile-properties has an empty name: give names of properties"))
	}
	return faults.ErrorOrNil()
}

// property says whether a property of a ClusterProfile becomes a label.
func (o *clusterProfileOptions) property(name string) bool {
	return slices.ContainsFunc(o.properties, func(pattern string) bool { return matches(pattern, name) })
}

func (w *wiring) addClusterProfiles() error {
	o := w.options.clusterProfiles
	if o.namespace == "" {
		return nil
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return err
	}
	profiles, err := clusterprofile.NewInventory(clusterprofile.InventoryOptions{
		Config: w.mgr.GetConfig(), HTTPClient: w.mgr.GetHTTPClient(), Namespace: o.namespace, Selector: selector, Logger: w.log,
	})
	if err != nil {
		return err
	}
	return clusterprofile.NewReconciler(clusterprofile.Options{
		Hub: w.mgr.GetClient(), Inventory: profiles, Namespace: w.options.namespace, Property: o.property,
		Recorder: w.mgr.GetEventRecorder(recorderName),
	}).Add(w.mgr)
}
