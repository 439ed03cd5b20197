// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// WorkerData is data that is near a worker. An admin writes it: no standard object of Kubernetes says it.
type WorkerData struct {
	// prefix is the beginning of the URIs of the data, such as s3://bucket/ or s3://bucket/folder. It counts for whole
	// segments: s3://bucket/a has s3://bucket/a and s3://bucket/a/b, and not s3://bucket/ab. s3://bucket/a* has that too,
	// and s3:// has every bucket. Of several prefixes the longest counts. URIs are compared letter by letter, and nothing
	// opens them.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9+.-]*://[^*\\\\s[:cntrl:]]*[*]?$')",message="must begin with a scheme, as s3://bucket/folder does, have no white space, and have * at its end only"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/]*:[^/]*@')",message="must have no password"
	Prefix string `json:"prefix"`
	// cost is what it costs jobs of the worker to read this data, from 0 to 100, in a unit that is the same for all workers:
	// in proportion to the price of a GiB, for example, or to how slow it is. 0 is data beside the worker, and 100 is as
	// costly as data that is not listed. Absent: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Cost int32 `json:"cost,omitempty"`
}
