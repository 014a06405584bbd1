# What the recipe at this commit takes of us: names, types and which are required. No resources, so it plans offline.
# 0ae155939f11b99b0452953849fe2bb69cd31ebe
variable "tenant_id" { type = string }
variable "parent_id" { type = string }
variable "subnet_id" { type = string }
variable "region" { type = string }
variable "iam_token" { type = string }
variable "cluster_name" {
  type    = string
  default = "k8s-training"
}
variable "ssh_public_key" {
  type = object({
    key  = optional(string)
    path = optional(string, "~/.ssh/id_rsa.pub")
  })
  default = {}
}
variable "cpu_nodes_fixed_count" {
  type    = number
  default = 3
}
variable "cpu_nodes_platform" {
  type    = string
  default = null
}
variable "cpu_nodes_preset" {
  type    = string
  default = null
}
variable "gpu_node_groups" {
  type    = number
  default = 1
}
variable "gpu_nodes_fixed_count_per_group" {
  type    = number
  default = 2
}
variable "gpu_nodes_platform" {
  type    = string
  default = null
}
variable "gpu_nodes_preset" {
  type    = string
  default = null
}
variable "gpu_nodes_driverfull_image" {
  type    = bool
  default = false
}
variable "gpu_disk_type" {
  type    = string
  default = "NETWORK_SSD"
}
variable "gpu_disk_size" {
  type    = string
  default = "1023"
}
variable "infiniband_fabric" {
  type    = string
  default = null
}
variable "enable_filestore" {
  type    = bool
  default = false
}
variable "filestore_disk_type" {
  type    = string
  default = "NETWORK_SSD"
}
variable "filestore_disk_size_gibibytes" {
  type    = number
  default = 1
}
variable "filestore_block_size_kibibytes" {
  type    = number
  default = 4
}
variable "filestore_mount_path" {
  type    = string
  default = "/mnt/data"
}
variable "filestore_forbid_deletion" {
  type    = bool
  default = false
}
variable "kueue" {
  type    = object({ enabled = optional(bool, false) })
  default = {}
}
variable "loki" { # no default: it must be given
  type = object({
    enabled            = optional(bool, false)
    region             = optional(string)
    replication_factor = optional(number)
  })
}
variable "enable_grafana" {
  type    = bool
  default = true
}
variable "enable_prometheus" {
  type    = bool
  default = true
}

output "said" {
  value = {
    nodes    = var.gpu_node_groups * var.gpu_nodes_fixed_count_per_group
    preset   = var.gpu_nodes_preset
    platform = var.gpu_nodes_platform
    shared   = var.filestore_disk_size_gibibytes
    fabric   = var.infiniband_fabric
  }
}
