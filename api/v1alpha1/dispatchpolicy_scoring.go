// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ScoreName names a score, a number from 0 to 100 for each worker on which a job fits.
// +kubebuilder:validation:Enum=LeastAllocated;MostAllocated;Price;QueueDepth;Sticky;Preference;AddedNodes;DataLocality
type ScoreName string

// The scores.
const (
	// ScoreLeastAllocated: the share of the job's dominant resource (GPUs if it requests any) that is free now. It spreads
	// jobs.
	ScoreLeastAllocated ScoreName = "LeastAllocated"
	// ScoreMostAllocated: three quarters are the share that the job would use of what is free on the nodes that it would
	// get, and one quarter is how full the worker would be. It fills fragments, so that whole nodes stay free for gangs.
	// Each job that is placed there and has no pods yet costs one point, so that simultaneous jobs spread over workers
	// with similar scores.
	ScoreMostAllocated ScoreName = "MostAllocated"
	// ScorePrice: the price of the job there per hour: 100 for nothing, 0 for the price at the ceiling or more.
	ScorePrice ScoreName = "Price"
	// ScoreQueueDepth: 100 divided by one more than the number of jobs that are placed there and have no pods yet.
	ScoreQueueDepth ScoreName = "QueueDepth"
	// ScoreSticky: 100 for the worker on which the job ran before, with the images and perhaps the data, else 0.
	ScoreSticky ScoreName = "Sticky"
	// ScorePreference: the place of the worker in the order of the score: 100 for the first worker, less for each next one
	// by the same amount, and 0 for a worker that is not in the order.
	ScorePreference ScoreName = "Preference"
	// ScoreAddedNodes: 100 if the worker has room for the job on nodes that are there, else 100 divided by one more than the
	// number of nodes that it would add.
	ScoreAddedNodes ScoreName = "AddedNodes"
	// ScoreDataLocality: 100 less what it costs there to read the job's data, as WorkerCluster's spec.data says.
	ScoreDataLocality ScoreName = "DataLocality"
)

// Score is how much a score counts.
// +kubebuilder:validation:XValidation:rule="self.name == 'Price' || !has(self.ceiling)",message="only the score Price has a ceiling"
// +kubebuilder:validation:XValidation:rule="(self.name == 'Preference') == has(self.order)",message="the score Preference needs an order, and no other score has one"
type Score struct {
	// name is the name of the score.
	Name ScoreName `json:"name"`
	// weight is the weight of the score. The total is the weighted average.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
	// ceiling is for Price only, per unit and hour like WorkerCluster's spec.price. At these prices a job's score is 0.
	// For an absent resource it is the highest price of all WorkerClusters. So with a ceiling, a new expensive worker does
	// not make other scores alike.
	// +optional
	Ceiling Prices `json:"ceiling,omitempty"`
	// order is for Preference only: the names of WorkerClusters, the preferred one first.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Order []ClusterName `json:"order,omitempty"`
}
