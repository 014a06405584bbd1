# ../.envrc sets the first four and iam_token from the account; the others are in terraform.tfvars.
variable "tenant_id" {
  type        = string
  description = "such as tenant-..."

  validation {
    condition     = startswith(var.tenant_id, "tenant-")
    error_message = "tenant_id must start with tenant-; source ../.envrc."
  }
}

variable "project_id" {
  type        = string
  description = "such as project-..."

  validation {
    condition     = startswith(var.project_id, "project-")
    error_message = "project_id must start with project-; source ../.envrc."
  }
}

variable "region" {
  type        = string
  description = "such as eu-north1"
}

variable "subnet_id" {
  type        = string
  description = "such as vpcsubnet-..."

  validation {
    condition     = startswith(var.subnet_id, "vpcsubnet-")
    error_message = "subnet_id must start with vpcsubnet-; source ../.envrc."
  }
}

variable "name" {
  type        = string
  description = "of the cluster: lower-case letters, digits and dashes"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}[a-z0-9]$", var.name))
    error_message = "name must have 2 to 32 lower-case letters, digits and dashes, and begin with a letter."
  }
}

variable "iam_token" {
  type        = string
  sensitive   = true
  description = "of the one who applies; it ends after hours, so source ../.envrc again then"
}

variable "ssh_public_key" {
  type        = string
  description = "of the user who may log in to the nodes"

  validation {
    condition     = can(regex("^(ssh|ecdsa)-", var.ssh_public_key))
    error_message = "ssh_public_key must be a public key, such as ssh-ed25519 AAAA..."
  }
}

variable "cpu_nodes" {
  type        = number
  default     = 2
  description = "nodes without GPUs, for the cluster's own services and for staging"
}

variable "nodes" {
  type        = number
  default     = 2
  description = "GPU nodes"
}

variable "platform" {
  type        = string
  default     = "gpu-h100-sxm"
  description = "gpu-h100-sxm, gpu-h200-sxm, gpu-b200-sxm, ...; never without its ending"

  validation {
    condition     = can(regex("^gpu-[a-z0-9]+-sxm(-a)?$", var.platform))
    error_message = "platform must be one with InfiniBand, such as gpu-h100-sxm or gpu-h200-sxm."
  }
}

variable "preset" {
  type        = string
  default     = "8gpu-128vcpu-1600gb"
  description = "of the platform; whole nodes alone have InfiniBand"

  validation {
    condition     = startswith(var.preset, "8gpu-")
    error_message = "preset must be a whole node, such as 8gpu-128vcpu-1600gb: with fewer GPUs a node has no InfiniBand."
  }
}

variable "infiniband_fabric" {
  type        = string
  description = "fabric of the region in which the GPUs are reserved, such as fabric-3"

  validation {
    condition     = length(trimspace(var.infiniband_fabric)) > 0
    error_message = "infiniband_fabric must be named; the project's quota or reservation says which."
  }
}

variable "shared_gib" {
  type        = number
  default     = 2048
  description = "/mnt/data, which all nodes share"
}

variable "disk_gib" {
  type        = number
  default     = 1023
  description = "network SSD of each GPU node, where images and emptyDir lie: 2 TiB on two nodes"
}

variable "keep_data" {
  type        = bool
  default     = true
  description = "whether the shared file system refuses to be destroyed; set it to false first when the cluster goes"
}

variable "kueue" {
  type        = bool
  default     = false
  description = "queues for jobs (job.kubernetes.queue)"
}
