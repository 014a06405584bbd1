# What the recipe at this commit takes of us: names, types and which are required. No resources, so it plans offline.
# 00c54d0035c153692b9bc6f178f00bbff9e8f574

variable "region" { type = string }
variable "iam_tenant_id" { type = string }
variable "iam_project_id" { type = string }
variable "vpc_subnet_id" { type = string }
variable "o11y_iam_tenant_id" { type = string }
variable "o11y_profile" { type = string }
variable "company_name" { type = string }
variable "production" {
  type    = bool
  default = true
}
variable "iam_merge_request_url" {
  type    = string
  default = ""

  validation {
    condition     = var.production == (length(var.iam_merge_request_url) > 0)
    error_message = "a production cluster needs the URL of a merge request"
  }
}
variable "public_o11y_enabled" {
  type    = bool
  default = true
}
variable "k8s_version" {
  type    = string
  default = null
}
variable "node_group_version" { type = string }
variable "slurm_operator_version" { type = string }

variable "filesystem_jail" {
  type = object({
    existing = optional(object({ id = string }))
    spec = optional(object({
      type                 = string
      size_gibibytes       = number
      block_size_kibibytes = number
      forbid_deletion      = optional(bool, false)
    }))
  })
}
variable "filesystem_jail_submounts" {
  type = list(object({
    name       = string
    mount_path = string
    existing   = optional(object({ id = string }))
    spec = optional(object({
      type                 = string
      size_gibibytes       = number
      block_size_kibibytes = number
      forbid_deletion      = optional(bool, false)
    }))
  }))

  validation {
    condition     = length(var.filesystem_jail_submounts) > 0 && alltrue([for one in var.filesystem_jail_submounts : one.mount_path != "/home"])
    error_message = "at least one, and none at /home"
  }
}
variable "filestore_controller_spool" {
  type = object({
    existing = optional(object({ id = string }))
    spec = optional(object({
      size_gibibytes       = number
      block_size_kibibytes = number
      forbid_deletion      = optional(bool, false)
    }))
  })
}

variable "slurm_nodeset_workers" {
  type = list(object({
    name = string
    size = number
    autoscaling = optional(object({
      enabled  = optional(bool, true)
      min_size = optional(number, 0)
    }), {})
    resource = object({ platform = string, preset = string })
    boot_disk = object({
      type                 = string
      size_gibibytes       = number
      block_size_kibibytes = number
    })
    gpu_cluster = optional(object({
      id                = optional(string)
      infiniband_fabric = optional(string)
    }))
    node_local_image_disk = object({
      enabled = bool
      spec    = optional(object({ size_gibibytes = number, filesystem_type = string, disk_type = string }))
    })
    node_local_jail_submounts = list(object({
      name            = string
      mount_path      = string
      size_gibibytes  = number
      disk_type       = string
      filesystem_type = string
    }))
  }))

  validation {
    condition = alltrue([for worker in var.slurm_nodeset_workers : contains(
      ["gpu-h100-sxm", "gpu-h200-sxm", "gpu-b200-sxm", "gpu-b200-sxm-a", "gpu-b300-sxm", "cpu-d3"], worker.resource.platform
    )])
    error_message = "no such platform"
  }
  validation {
    condition     = alltrue([for worker in var.slurm_nodeset_workers : worker.boot_disk.size_gibibytes >= 128])
    error_message = "boot disks have at least 128 GiB"
  }
}
variable "slurm_nodeset_login" {
  type = object({
    size     = number
    resource = object({ platform = string, preset = string })
    boot_disk = object({
      type                 = string
      size_gibibytes       = number
      block_size_kibibytes = number
    })
  })

  validation {
    condition     = var.slurm_nodeset_login.size >= 1 && var.slurm_nodeset_login.boot_disk.size_gibibytes >= 256
    error_message = "at least one, with a boot disk of 256 GiB"
  }
}
variable "slurm_login_ssh_root_public_keys" { type = list(string) }
variable "slurm_nodesets_partitions" {
  type = list(object({
    name               = string
    is_all             = optional(bool, false)
    slurm_nodeset_refs = optional(list(string), [])
    topology           = string
    config             = string
  }))

  validation {
    condition     = alltrue([for one in var.slurm_nodesets_partitions : one.is_all != (length(one.slurm_nodeset_refs) > 0)])
    error_message = "all node sets, or some by name"
  }
  validation {
    condition     = alltrue([for one in var.slurm_nodesets_partitions : contains(["flat", "tree-ib", "block-nvl72"], one.topology)])
    error_message = "no such topology"
  }
}
variable "slurm_shared_memory_size_gibibytes" {
  type    = number
  default = 64
}
variable "use_preinstalled_gpu_drivers" {
  type    = bool
  default = false
}
variable "accounting_enabled" {
  type    = bool
  default = false
}
variable "active_checks_scope" {
  type    = string
  default = "prod_quick"

  validation {
    condition     = contains(["dev", "testing", "prod_quick", "prod_acceptance", "essential"], var.active_checks_scope)
    error_message = "no such scope"
  }
}

variable "backups_enabled" {
  type    = string
  default = "auto"
}
variable "backups_password" {
  type     = string
  nullable = false
}
variable "backups_schedule" { type = string }
variable "backups_prune_schedule" { type = string }
variable "backups_retention" { type = map(any) }
variable "cleanup_bucket_on_destroy" { type = bool }

output "said" {
  value = {
    workers = var.slurm_nodeset_workers
    shared  = var.filesystem_jail_submounts
  }
}
