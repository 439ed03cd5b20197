// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trace reads recorded jobs in the formats of three published traces, and writes them for samples.
//
//   - philly: the file cluster_job_log of Microsoft's Philly traces (github.com/msr-fiddle/philly-traces), JSON. A job's pods are the
//     servers of the attempt with the most GPUs, and its duration is that of all attempts. CPU was not recorded.
//   - pai: pai_task_table.csv of Alibaba's cluster-trace-gpu-v2020 (github.com/alibaba/clusterdata), with or without the line of names,
//     which the published files have in files of their own. A job's pods are the instances of its tasks, and it lasts from the begin of
//     the first to the end of the last. It is submitted when pai_job_table.csv says so, or when its first task begins. Shares of GPUs
//     are rounded up to whole ones.
//   - openb: openb_pod_list_*.csv of Alibaba's cluster-trace-gpu-v2023 (same place). Each pod is a job; shares of GPUs are rounded up.
//
// Jobs that were not run to an end, or of which it is not known when, are left out and counted. Anything else that is not as it
// should be is a Fault, which says where it is and what would be right.
package trace
