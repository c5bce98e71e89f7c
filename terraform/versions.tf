terraform {
  # 1.11 has write-only arguments, by which secrets stay out of the state.
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region

  # Calls count against the project that is set up, whoever's credentials they are made with.
  user_project_override = true
  billing_project       = var.project

  default_labels = { app = "mailyard" }
}
